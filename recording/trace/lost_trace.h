// Findings about trace of a stream that is missing or not in order. Private to recording.
#pragma once

#include <functional>
#include <vector>

#include "ptdecode/finding.h"
#include "recording/trace/segments.h"
#include "recording/trace/streams.h"

namespace ptd {

/// Returns the words for why trace is missing. `emulated`: an emulator made the trace.
[[nodiscard]] const char* reason_of(AuxBreak why, bool emulated);
/// Returns a finding for each reason for which trace is missing from `stream`, which is finished. `emulated`: an emulator made the trace.
[[nodiscard]] std::vector<Finding> lost_trace_findings(const AuxStream& stream, bool emulated);
/// Returns whether `stream`, of Intel PT, begins with a PSB, as a processor does ([SDM] "PSB"), or with at most 64 bytes before it.
[[nodiscard]] bool begins_with_psb(const AuxStream& stream);
/// Returns a finding if no segment of `stream` has its first bytes: all of them if it has no segment, or those of a beginning that is
/// missing though the stream has it from offset 0. `sync`: the name of the packet with which a segment begins.
[[nodiscard]] std::vector<Finding> begin_findings(const AuxStream& stream, const SegmentIndex& index, const char* sync);
/// Returns findings about payloads of `stream`, which is finished, that repeat or contradict others or are not in order.
[[nodiscard]] std::vector<Finding> placement_findings(const AuxStream& stream);
/// Returns a finding if TSCs of PSBs of `index`, of Intel PT, go back by at most 2^32 ticks: segments are swapped. Calls `visit` with the
/// offset of each PSB.
[[nodiscard]] std::vector<Finding> order_findings(const AuxStream& stream, const SegmentIndex& index, const SegmentTiming& timing,
                                                  const std::function<void(uint64_t offset)>& visit);

}  // namespace ptd
