// Whether a trace holds flow of virtual machines. Private to recording.
#pragma once

#include <functional>

#include "recording/trace/segments.h"

namespace ptd {

/// Returns true if a guest runs in the stream: a PIP packet with NR ([SDM] "Paging Information Packet"). Reads packets up to the first one.
/// If `stretches` is not SIZE_MAX, reads at most so many parts, spread over the stream (SegmentIndex::sample()). `check` is called for each
/// segment, and may throw.
[[nodiscard]] bool runs_guests(const SegmentIndex& index, const SegmentTiming& timing, const pt::Config& config, size_t stretches,
                               const std::function<void()>& check);

}  // namespace ptd
