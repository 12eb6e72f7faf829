// ContextFollower: determines which of a cpu's context switches a flow has passed if time alone does not show it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ptdecode/context_track.h"
#include "ptdecode/timeline.h"

namespace ptd::pt {

/// Switch records have exact times, but a position in the flow has only an interval, which may contain several switches. Each switch
/// executes one kernel function (__switch_to), after which exactly one record names the incoming thread. Counting its executions from a
/// position whose thread is certain by time gives the thread exactly.
class ContextFollower {
 public:
  ContextFollower() = default;
  ContextFollower(const ContextTrack& contexts, int32_t cpu);

  /// Returns the number of switches recorded up to `t`.
  [[nodiscard]] uint32_t passed_at(TimeNs t) const;
  /// Returns the number of switches before a switch whose two records enclose `t`, where the clock cannot show whether the flow has passed
  /// the switch function. Empty if `t` is not between two such records.
  [[nodiscard]] std::optional<uint32_t> open_at(TimeNs t) const;
  /// Returns the context at a position within [first, last] after `passed` switches. Updates `passed` if time proves another number. User
  /// code cannot belong to a thread without code at `ip`: then the nearest switch of the interval to a thread with code there is used.
  [[nodiscard]] Context at(uint32_t& passed, TimeNs first, TimeNs last, Ip ip, const Timeline& timeline) const;

 private:
  [[nodiscard]] Context after_switch(uint32_t passed, TimeNs last) const;

  const ContextTrack* contexts_ = nullptr;
  int32_t cpu_ = -1;
  std::vector<TimeNs> changes_;  ///< of each switch, the moment of its last record (the incoming thread's own)
  std::vector<TimeNs> leaves_;   ///< of each switch, the moment of its first record (the outgoing thread's)
};

}  // namespace ptd::pt
