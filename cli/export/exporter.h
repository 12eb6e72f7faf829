// Writes a recording to an SQLite database.
#pragma once

#include <string>
#include <string_view>

#include "cli/calls/call_input.h"

namespace ptd::cli {

/// The tables of docs/TABLES.md that are written unless others are named: all but `blocks`.
inline constexpr std::string_view kDefaultTables = "calls,functions,threads,branches,edges,events,samples,gaps,findings,sections,versions";

/// As typed.
struct ExportWords {
  CallWords calls;
  std::string output;
  std::string tables{kDefaultTables};
};
/// Opens the recording and writes the database, which replaces a file at its path when it is complete. Says on standard error what was
/// written. Returns the exit status.
[[nodiscard]] int write_database(const ExportWords& words);

}  // namespace ptd::cli
