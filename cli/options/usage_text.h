// What is said about a command line that is wrong: which word, and what was likely meant.
#pragma once

#include <string>
#include <vector>

#include "cli/options/cli_app.h"

namespace ptd::cli {

/// Lines for standard error. `app` after its parse threw `error`; `words` as they were typed, without the program's name.
[[nodiscard]] std::string usage_text(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);

}  // namespace ptd::cli
