// What one segment may cost.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ptd::pt {

/// Beyond following one flow: instructions that are walked side by side or in looking back, steps of costly fetches (image/fetch_steps.h)
/// and copies of flows. When it is spent, a fork is followed by few flows for a short while and what comes after it is `ambiguous`, a costly
/// fetch is a Gap `limit`, and no contradiction is looked into. On recordings that lack a third of all poke records a segment takes up to
/// 220,000.
inline constexpr uint64_t kMaxSegmentWork = 300'000;

/// The work that a segment of `bytes` may cost: proportional to its size, so that many small segments cost no more than few large ones.
[[nodiscard]] constexpr uint64_t max_segment_work(uint64_t bytes) {
  constexpr uint64_t kLeast = 16'384, kPerByte = 256;
  return bytes < kMaxSegmentWork / kPerByte ? std::min(kMaxSegmentWork, kLeast + kPerByte * bytes) : kMaxSegmentWork;
}

}  // namespace ptd::pt
