// Sums of a time and a number of nanoseconds that stay within the range of times. Private to the project.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ptdecode/types.h"

namespace ptd {

[[nodiscard]] constexpr TimeNs plus(TimeNs time, uint64_t ns) { return TimeNs{time.value + std::min(kTimeMax.value - time.value, ns)}; }
[[nodiscard]] constexpr TimeNs minus(TimeNs time, uint64_t ns) { return TimeNs{time.value - std::min(time.value, ns)}; }

}  // namespace ptd
