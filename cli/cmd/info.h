// The summary of a recording, shared by `ptdecode info` and `ptdecode` alone.
#pragma once

#include "cli/options/options.h"
#include "ptdecode/survey.h"

namespace ptd::cli {

/// Prints the metadata of a recording. Returns the exit status.
int show_info(const InputOptions& input, bool json);
/// Reads the metadata of the input. Queries no debuginfod server.
[[nodiscard]] Result<Survey> survey_input(const InputOptions& input);

}  // namespace ptd::cli
