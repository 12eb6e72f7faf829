// The summary of a recording, shared by `ptdecode info` and `ptdecode` alone.
#pragma once

#include "cli/options/options.h"

namespace ptd::cli {

/// Prints what the recording says of itself; returns the exit status.
int show_info(const InputOptions& input, bool json);

}  // namespace ptd::cli
