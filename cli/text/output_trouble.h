// output_trouble: why standard output could not be written.
#pragma once

#include "cli/text/output.h"
#include "ptdecode/error.h"

namespace ptd::cli {

/// Returns the error to report after output.error() is not 0, with what to do where a limit is the reason.
[[nodiscard]] Error output_trouble(const Output& output);

}  // namespace ptd::cli
