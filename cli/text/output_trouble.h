// output_trouble: why standard output could not be written.
#pragma once

#include <string>

#include "cli/text/output.h"
#include "ptdecode/error.h"

namespace ptd::cli {

/// Returns what an errno of a write says, and the limit if one is the reason.
[[nodiscard]] std::string write_trouble(int number);
/// Returns the error to report after output.error() is not 0, with what to do where a limit is the reason.
[[nodiscard]] Error output_trouble(const Output& output);

}  // namespace ptd::cli
