// What `record --emulate=system` does: options, and the recording of a whole emulated machine.
#pragma once

#include <string>

#include "capture/emulate/system/system_runner.h"
#include "cli/options/cli_app.h"
#include "cli/report/stash_words.h"

namespace ptd::cli {

/// As typed.
struct SystemWords {
  emulate::SystemOptions options;
  std::string memory = "1G", events;
  bool typed(const CLI::App& command) const;  ///< whether any of these options was given
};

/// Adds --kernel, --cpus, --memory and --events.
void add_system_options(CLI::App& command, SystemWords& words);
/// Runs words.options.command in an emulated machine; the exit status is the program's, or what went wrong.
int record_system(SystemWords& words, const StashWords& stash, bool quiet);

}  // namespace ptd::cli
