// The FastCounter of a TMA packet.
#pragma once

#include <cstdint>

namespace ptd::pt {

/// Returns whether a TMA can have this FastCounter: the TSC ticks since the last tick of the crystal clock, whose ratio is `n`/`d` ([SDM]
/// "TMA Packet"). Its 9 bits hold no more than 511.
[[nodiscard]] constexpr bool is_fast_counter(uint64_t value, uint32_t n, uint32_t d) { return d == 0 || value <= uint64_t{n} / d + 1; }
/// Returns `value`, or of an impossible one the likeliest value: half a tick of the crystal clock.
[[nodiscard]] constexpr uint64_t likely_fast_counter(uint64_t value, uint32_t n, uint32_t d) {
  return is_fast_counter(value, n, d) ? value : n / (2 * uint64_t{d});
}

}  // namespace ptd::pt
