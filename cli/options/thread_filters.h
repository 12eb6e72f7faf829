// The options -C, --pid and --tid.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

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

}  // namespace ptd::cli
