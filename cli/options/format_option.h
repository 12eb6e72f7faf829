// --format text|json, and --json for short: one spelling for all commands that tell programs something.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ptd::cli {

/// `format` becomes "text" or "json"; it must outlive the parsing.
inline void add_format_option(CLI::App& command, std::string& format, const std::string& what) {
  command.add_option("--format", format, what)->check(CLI::IsMember({"text", "json"}));
  command.add_flag_callback(
      "--json", [&format] { format = "json"; }, "the same as --format json");
}

}  // namespace ptd::cli
