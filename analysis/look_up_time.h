// look_up_time(): when the functions of a segment's code are looked up.
#pragma once

#include <algorithm>

#include "ptdecode/types.h"

namespace ptd {

/// Returns the moments at which functions of a segment may be looked up, at least one. `time`: AuxSegment::time. The moment that a stream's
/// flow has come to may lie outside of it, where clocks are damaged.
[[nodiscard]] constexpr Interval look_up_time(Interval time) { return {time.first, std::max(time.first, time.last)}; }

}  // namespace ptd
