// Reads the samples of other events from perf.data.
#pragma once

#include <string>
#include <vector>

#include "recording/data/other_events.h"

namespace ptd {

/// read_other_events() for a perf.data file or directory. Errors: those of PerfReader::open.
[[nodiscard]] Result<OtherEvents> read_perf_samples(const std::string& path, const std::vector<Interval>& times, size_t most,
                                                    uint64_t most_bytes);

}  // namespace ptd
