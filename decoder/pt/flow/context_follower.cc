// ContextFollower: matches executions of the switch function with the switch records around them.
#include "decoder/pt/flow/context_follower.h"

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

std::optional<uint32_t> ContextFollower::open_at(TimeNs t) const {
  const uint32_t passed = passed_at(t);
  if (passed >= leaves_.size() || t < leaves_[passed]) return {};
  return passed;
}

Context ContextFollower::at(uint32_t& passed, TimeNs first, TimeNs last, Ip ip, const Timeline& timeline) const {
  const uint32_t least = passed_at(first), most = passed_at(last);
  passed = std::max(passed, least);
  if (passed > most + 1) passed = most;  // counted more than was recorded: records were lost
  // The incoming thread's own record comes after the switch function, so the flow may have passed one more switch than is recorded.
  const uint32_t counted = std::min(passed, static_cast<uint32_t>(changes_.size()));
  const Context context = after_switch(counted, last);
  const auto has_code = [&](const Context& c) { return c.space != kNoSpace && timeline.section_at(c.space, ip, last) != kNoSection; };
  if (is_kernel_half(ip) || least == most || has_code(context)) return context;
  for (uint32_t distance = 1; distance <= most - least; ++distance) {
    for (const bool later : {true, false}) {
      if (later ? counted + distance > most : counted < least + distance) continue;
      const uint32_t other = later ? counted + distance : counted - distance;
      const Context near = after_switch(other, last);
      if (!has_code(near)) continue;
      passed = std::max(passed, other);
      return near;
    }
  }
  return context;
}

// Returns the context after `passed` switches at the latest moment up to `last` before the next switch: an exec may have changed it since
// the switch.
Context ContextFollower::after_switch(uint32_t passed, TimeNs last) const {
  TimeNs moment = last;
  if (passed < leaves_.size() && leaves_[passed] <= moment) moment = TimeNs{leaves_[passed].value - (leaves_[passed].value != 0 ? 1 : 0)};
  if (passed > 0) moment = std::max(moment, changes_[passed - 1]);
  return contexts_->at_cpu(cpu_, moment);
}

}  // namespace ptd::pt
