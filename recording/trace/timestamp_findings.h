// Findings about Arm timestamps inside segments. Private to recording.
#pragma once

#include <functional>
#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/finding.h"
#include "recording/trace/segments.h"
#include "recording/trace/streams.h"

namespace ptd {

/// Returns a finding if timestamps of `stream`, of ETMv4 or ETE, contradict others: see arm::check_timestamps(). Those of sync points that
/// clock_findings() reports do not count. Scans the whole stream; `visit` gets each offset that it reaches.
[[nodiscard]] std::vector<Finding> timestamp_findings(const AuxStream& stream, const SegmentIndex& index, const SegmentTiming& timing,
                                                      const arm::TraceConfig& config, const std::function<void(uint64_t offset)>& visit);

}  // namespace ptd
