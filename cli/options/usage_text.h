// What is said about command lines: of options in the help, and of a wrong line, which word it is and what was likely meant.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/options/cli_app.h"

namespace ptd::cli {

/// Returns what writes the pages of help: options whose value may be left out as "--name[=VALUE]", where CLI11 writes "--name{DEFAULT}
/// VALUE".
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> help_formatter();

/// Lines for standard error. `app` after its parse threw `error`; `words` as they were typed, without the program's name.
[[nodiscard]] std::string usage_text(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);

}  // namespace ptd::cli
