// Limits of the work per segment.
#pragma once

#include <cstdint>

namespace ptd::pt {

/// Beyond following one flow: instructions that are walked side by side or in looking back, steps of costly fetches (image/fetch_steps.h)
/// and copies of flows. When it is spent, a fork is followed by few flows for a short while and what comes after it is `ambiguous`, a costly
/// fetch is a Gap `limit`, and no contradiction is looked into. On recordings that lack a third of all poke records a segment takes up to
/// 220,000.
inline constexpr uint64_t kMaxSegmentWork = 300'000;

}  // namespace ptd::pt
