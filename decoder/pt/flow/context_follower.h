// ContextFollower: determines which of a cpu's context switches a flow has passed if time alone does not show it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ptdecode/context_track.h"
#include "ptdecode/timeline.h"

namespace ptd::pt {

/// Switch records are dated exactly, a flow's place only by an interval that may hold several of them. But each switch passes
/// through one function of the kernel (__switch_to), after which exactly one record tells the incoming thread. Counting passages from
/// a place that time does settle gives the thread exactly.
class ContextFollower {
 public:
  ContextFollower() = default;
  ContextFollower(const ContextTrack& contexts, int32_t cpu);

  /// Switches recorded up to `t`.
  [[nodiscard]] uint32_t passed_at(TimeNs t) const;
  /// The number of the switch between whose two records `t` lies, where the clock cannot tell whether the flow has passed the switch
  /// function: switches before it. None if `t` lies in no such stretch.
  [[nodiscard]] std::optional<uint32_t> open_at(TimeNs t) const;
  /// Context at a place of [first, last] after `passed` switches. Updates `passed` with what time proves. A place in user code cannot be
  /// that of a thread without code at `ip`: the nearest switch of the interval to one that has some is taken, if there is one.
  [[nodiscard]] Context at(uint32_t& passed, TimeNs first, TimeNs last, Ip ip, const Timeline& timeline) const;

 private:
  [[nodiscard]] Context after_switch(uint32_t passed, TimeNs last) const;

  const ContextTrack* contexts_ = nullptr;
  int32_t cpu_ = -1;
  std::vector<TimeNs> changes_;  ///< of each switch, the moment of its last record (the incoming thread's own)
  std::vector<TimeNs> leaves_;   ///< of each switch, the moment of its first record (the outgoing thread's)
};

}  // namespace ptd::pt
