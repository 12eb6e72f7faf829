// The options -C, --pid and --tid.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/options/cli_app.h"
#include "cli/options/script_options.h"
#include "ptdecode/error.h"

namespace ptd::cli {

/// The values of -C, --pid and --tid as they were given: lists of numbers and ranges; "": all.
struct ThreadFilterWords {
  const std::string &cpus, &pids, &tids;
};
/// Adds the options. The words must outlive the command.
void add_thread_filters(CLI::App& command, std::string& cpus, std::string& pids, std::string& tids);
/// Sets the filters of `options` to those that are given. Errors: as parse_number_list().
[[nodiscard]] Status parse_thread_filters(const ThreadFilterWords& words, ScriptOptions& options);

/// Splits a list of names at its commas. A comma after a backslash is part of a name, and so is one in the parentheses or angle brackets of
/// a name; where brackets do not match (operator<), they do not count.
[[nodiscard]] std::vector<std::string> split_names(std::string_view text);

}  // namespace ptd::cli
