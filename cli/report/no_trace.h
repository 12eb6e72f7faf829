// Recordings without a trace: what to say of them.
#pragma once

#include "cli/options/options.h"

namespace ptd::cli {

/// As open_recording(), for what needs a trace: without one, an error that says what the file is and how to record a trace.
[[nodiscard]] Result<std::unique_ptr<Recording>> open_traced(const InputOptions& input);
/// Says that on standard error of a recording without a trace; for what makes sense without one.
void note_absent_trace(const InputOptions& input, const Recording& recording);

}  // namespace ptd::cli
