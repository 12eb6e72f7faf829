// Whether a trace holds flow of virtual machines. Private to recording.
#pragma once

#include <functional>

#include "recording/trace/segments.h"

namespace ptd {

/// Returns true if a guest runs somewhere in the stream: a PIP packet with NR ([SDM] "Paging Information Packet"). Reads packets up to the first
/// one, so the whole stream if there is none. `check` is called now and then, and may throw.
[[nodiscard]] bool runs_guests(const SegmentIndex& index, const SegmentTiming& timing, const pt::Config& config, const std::function<void()>& check);

}  // namespace ptd
