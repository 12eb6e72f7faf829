// Limits of the work per segment.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ptd::pt {

/// Limit of the work in addition to following one flow: instructions walked in parallel or when searching backwards, steps of expensive
/// fetches (image/fetch_steps.h) and copies of flows. When it is used up, a fork is followed by few flows for a short distance and
/// the blocks after it are `ambiguous`, an expensive fetch is a Gap `limit`, and contradictions are not investigated.
/// In recordings that lack a third of all poke records, a segment takes up to 220,000 steps.
inline constexpr uint64_t kMaxSegmentWork = 300'000;

/// The work that a segment of `bytes` may cost: proportional to its size, so that many small segments cost no more than few large ones.
[[nodiscard]] constexpr uint64_t max_segment_work(uint64_t bytes) {
  constexpr uint64_t kLeast = 16'384, kPerByte = 256;
  return bytes < kMaxSegmentWork / kPerByte ? std::min(kMaxSegmentWork, kLeast + kPerByte * bytes) : kMaxSegmentWork;
}

}  // namespace ptd::pt
