// ContextFollower: determines which of a cpu's context switches a flow has passed if time alone does not show it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ptdecode/context_track.h"
#include "ptdecode/types.h"

namespace ptd::pt {

/// Switch records have exact times, but a position in the flow has only an interval, which may contain several switches. Each switch
/// executes one kernel function (__switch_to), after which exactly one record names the incoming thread. Counting its executions from a
/// position whose thread is certain by time gives the thread exactly.
class ContextFollower {
 public:
  ContextFollower() = default;
  ContextFollower(const ContextTrack& contexts, int32_t cpu);

  /// Returns the number of switches recorded up to `t`.
  [[nodiscard]] uint32_t passed_at(TimeNs t) const { return count(changes_, t); }
  /// Returns the number of switches whose first record comes up to `t`: the flow has passed no more. Those beyond passed_at() are between
  /// their two records, where the clock does not show whether the flow has passed the switch function. No user code runs there.
  [[nodiscard]] uint32_t left_at(TimeNs t) const { return count(leaves_, t); }
  /// Returns the number of switches passed by a trace that starts at `t` in the kernel (ContextTrack::add_leave()); 0 if it may be another.
  [[nodiscard]] uint32_t begun_at(TimeNs t) const;
  /// Returns whether the trace is of events that are attached to threads: it never contains the switch function.
  [[nodiscard]] bool is_of_threads() const { return !begins_.empty(); }
  /// Returns the context at a position within [first, last] after `passed` switches. Updates `passed` if time proves another number.
  [[nodiscard]] Context at(uint32_t& passed, TimeNs first, TimeNs last) const;
  /// Returns the context after `passed` switches at the latest moment up to `last` before the next switch: an exec may have changed it
  /// since the switch.
  [[nodiscard]] Context after_switch(uint32_t passed, TimeNs last) const;

 private:
  [[nodiscard]] static uint32_t count(const std::vector<TimeNs>& times, TimeNs t) {
    return static_cast<uint32_t>(std::upper_bound(times.begin(), times.end(), t) - times.begin());
  }

  const ContextTrack* contexts_ = nullptr;
  int32_t cpu_ = -1;
  std::vector<TimeNs> changes_;  ///< of each switch, the moment of its last record (the incoming thread's own)
  std::vector<TimeNs> leaves_;   ///< of each switch, the moment of its first record (the outgoing thread's)
  struct Begin {
    TimeNs time;
    uint32_t switches = 0;
  };
  std::vector<Begin> begins_;  ///< of each switch before whose record the thread's trace starts
};

}  // namespace ptd::pt
