// ContextFollower: matches executions of the switch function with the switch records around them.
#include "decoder/pt/flow/context_follower.h"

#include <algorithm>
#include <iterator>

namespace ptd::pt {

ContextFollower::ContextFollower(const ContextTrack& contexts, int32_t cpu) : contexts_(&contexts), cpu_(cpu) {
  const std::vector<ContextTrack::Switch>& switches = contexts.switches(cpu);
  const std::vector<TimeNs>& leaves = contexts.leaves(cpu);
  size_t left = 0;  // of `leaves`, those before the record
  for (size_t i = 0; i < switches.size(); ++i) {
    const ContextTrack::Switch& record = switches[i];
    const size_t first = left;
    while (left < leaves.size() && leaves[left] <= record.time) ++left;
    const bool begins = left != first && i != 0;
    if (i != 0 && !begins && record.to.tid == switches[i - 1].to.tid && record.to.pid == switches[i - 1].to.pid) {
      changes_.back() = record.time;
      continue;
    }
    leaves_.push_back(begins ? std::max(leaves[left - 1], switches[i - 1].time) : record.time);
    changes_.push_back(record.time);
    if (begins) begins_.push_back({leaves_.back(), static_cast<uint32_t>(leaves_.size())});
  }
}

uint32_t ContextFollower::begun_at(TimeNs t) const {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), t, [](TimeNs time, const Begin& begin) { return time < begin.time; });
  return next == begins_.begin() ? 0 : std::prev(next)->switches;
}

Context ContextFollower::at(uint32_t& passed, TimeNs first, TimeNs last) const {
  const uint32_t most = passed_at(last);
  passed = std::max(passed, passed_at(first));
  if (passed > most + 1) passed = most;  // counted more than was recorded: records were lost
  // The incoming thread's own record comes after the switch function, so the flow may have passed one more switch than is recorded.
  return after_switch(passed, last);
}

Context ContextFollower::after_switch(uint32_t passed, TimeNs last) const {
  passed = std::min(passed, static_cast<uint32_t>(changes_.size()));
  TimeNs moment = last;
  if (passed < leaves_.size() && leaves_[passed] <= moment) moment = TimeNs{leaves_[passed].value - (leaves_[passed].value != 0 ? 1 : 0)};
  if (passed > 0) moment = std::max(moment, changes_[passed - 1]);
  return contexts_->at_cpu(cpu_, moment);
}

}  // namespace ptd::pt
