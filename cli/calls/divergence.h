// `ptdecode script --diff`: where two runs of the same work begin to differ.
#pragma once

#include <array>

#include "cli/calls/call_input.h"

namespace ptd::cli {

/// Decodes both recordings, twice where they differ, and prints for each thread the first call that only one of them makes, and the first
/// that executes another number of instructions. Returns the exit status: kExitFinding if there is any.
[[nodiscard]] int show_divergence(const std::array<CallWords, 2>& words);

}  // namespace ptd::cli
