// The conversion from trace time to perf time in a recording. Private to recording.
#pragma once

#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/records.h"
#include "ptdecode/time_conversion.h"

namespace ptd {

/// Returns the conversion from the TIME_CONV record (time_mult 0: none), else from AUXTRACE_INFO; not valid() if neither has it.
[[nodiscard]] TimeConversion conversion_of(const perfio::IntelPtInfo& info, const perfio::TimeConvRecord& record);

}  // namespace ptd
