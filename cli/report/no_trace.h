// Messages for recordings without a trace, and for bundles without source lines.
#pragma once

#include "cli/options/options.h"

namespace ptd::cli {

/// Returns whether the recording contains a byte of trace: its streams may all be empty.
[[nodiscard]] bool has_trace(const Recording& recording);
/// As open_recording(), for what needs a trace: without one, an error that says what the file is and how to record a trace.
[[nodiscard]] Result<std::unique_ptr<Recording>> open_traced(const InputOptions& input);
/// Says that on standard error of a recording without a trace; for what makes sense without one.
void note_absent_trace(const InputOptions& input, const Recording& recording);
/// The error of `what` (a command or an option) that needs source lines, for a bundle.
[[nodiscard]] Error no_source_lines(const std::string& what);

}  // namespace ptd::cli
