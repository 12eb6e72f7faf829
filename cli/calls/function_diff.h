// `ptdecode functions --diff`: two recordings, function by function and path by path.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "cli/calls/call_input.h"

namespace ptd::cli {

struct FunctionDiffWords {
  std::array<CallWords, 2> calls;  ///< with the paths of the recordings
  std::string function;            ///< only functions of this name, and paths that end in them; empty: all
  std::string sort = "self";       ///< self, total, calls or instructions
  bool json = false;
  std::optional<size_t> limit;  ///< of functions and of paths; 0: all; not given: 40 and 10, in JSON all
};
/// Decodes both recordings and prints what differs, the largest change first. Returns the exit status.
[[nodiscard]] int diff_functions(const FunctionDiffWords& words);

}  // namespace ptd::cli
