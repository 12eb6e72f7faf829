// Findings about trace of a stream that is missing or not in order. Private to recording.
#pragma once

#include <functional>
#include <vector>

#include "ptdecode/finding.h"
#include "recording/trace/segments.h"
#include "recording/trace/streams.h"

namespace ptd {

/// Returns a finding for each reason for which trace is missing from `stream`, which is finished. `emulated`: an emulator made the trace.
[[nodiscard]] std::vector<Finding> lost_trace_findings(const AuxStream& stream, bool emulated);
/// Returns findings about payloads of `stream`, which is finished, that repeat or contradict others or are not in order.
[[nodiscard]] std::vector<Finding> placement_findings(const AuxStream& stream);
/// Returns a finding if TSCs of PSBs of `index`, of Intel PT, go back by at most 2^32 ticks: segments are swapped. Calls `visit` with the offset of
/// each PSB.
[[nodiscard]] std::vector<Finding> order_findings(const AuxStream& stream, const SegmentIndex& index, const SegmentTiming& timing,
                                                  const std::function<void(uint64_t offset)>& visit);

}  // namespace ptd
