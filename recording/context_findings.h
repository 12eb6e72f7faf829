// Findings about CoreSight context packets that switch records contradict. Private to recording.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ptdecode/finding.h"
#include "recording/data/recording_data.h"

namespace ptd {

/// Returns a finding for each place where context packets of a cpu's stream name another thread than its switch records: see
/// arm::check_segment(). Scans the whole stream; `visit` gets each offset that it reaches.
[[nodiscard]] std::vector<Finding> context_findings(const RecordingData& data, size_t stream,
                                                    const std::function<void(uint64_t offset)>& visit);

}  // namespace ptd
