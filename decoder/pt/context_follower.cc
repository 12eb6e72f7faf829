// ContextFollower: passages of the switch function are counted against the switch records around them.
#include "decoder/pt/context_follower.h"

#include <algorithm>

namespace ptd::pt {

ContextFollower::ContextFollower(const ContextTrack& contexts, int32_t cpu) : contexts_(&contexts), cpu_(cpu) {
  const std::vector<ContextTrack::Switch>& switches = contexts.switches(cpu);
  const auto same = [&](size_t a, size_t b) {
    return switches[a].to.tid == switches[b].to.tid && switches[a].to.pid == switches[b].to.pid;
  };
  for (size_t i = 0; i < switches.size(); ++i) {
    if (i == 0 || !same(i - 1, i)) leaves_.push_back(switches[i].time);
    if (i + 1 == switches.size() || !same(i, i + 1)) changes_.push_back(switches[i].time);
  }
}

uint32_t ContextFollower::passed_at(TimeNs t) const {
  return static_cast<uint32_t>(std::upper_bound(changes_.begin(), changes_.end(), t) - changes_.begin());
}

Context ContextFollower::at(uint32_t& passed, TimeNs first, TimeNs last) const {
  const uint32_t least = passed_at(first), most = passed_at(last);
  passed = std::max(passed, least);
  if (passed > most + 1) passed = most;  // counted more than was recorded: records were lost
  const uint32_t chosen = std::min(passed, most);
  // The latest moment of [first, last] at which the thread of this switch is the recorded one: an exec may have come late.
  TimeNs moment = last;
  if (chosen < leaves_.size() && leaves_[chosen] <= moment) moment = TimeNs{leaves_[chosen].value - (leaves_[chosen].value != 0 ? 1 : 0)};
  if (chosen > 0) moment = std::max(moment, changes_[chosen - 1]);
  return contexts_->at_cpu(cpu_, moment);
}

}  // namespace ptd::pt
