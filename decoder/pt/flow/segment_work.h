// Limits of the work per segment.
#pragma once

#include <cstdint>

namespace ptd::pt {

/// Limit of the work in addition to following one flow: instructions walked in parallel or when searching backwards, steps of expensive
/// fetches (image/fetch_steps.h) and copies of flows. When it is used up, a fork is followed by few flows for a short distance and
/// the blocks after it are `ambiguous`, an expensive fetch is a Gap `limit`, and contradictions are not investigated.
/// In recordings that lack a third of all poke records, a segment takes up to 220,000 steps.
inline constexpr uint64_t kMaxSegmentWork = 300'000;

}  // namespace ptd::pt
