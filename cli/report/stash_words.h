// What commands that record say about the stash: options, and keeping at the end.
#pragma once

#include <memory>
#include <string>

#include "cli/options/cli_app.h"

namespace ptd {
struct SaveReport;
class CodeSaverThread;
}  // namespace ptd

namespace ptd::cli {

struct StashWords {
  bool off = false;
  std::string path, limit;
};

/// --no-stash, --stash, --stash-limit.
void add_stash_options(CLI::App& command, StashWords& words);

/// Puts what an emulated recording maps into the stash, unless that is off. Failures are reported and are otherwise harmless: the recording
/// is made.
void keep_recorded(const std::string& recording, const StashWords& words, bool quiet);
/// The same of a snapshot of a session, whose processes may still run.
void keep_snapshot(const std::string& recording, const StashWords& words, bool quiet);

/// The same of a recording of this machine, from its start to its end. Null if that is off, or cannot be, which is said.
[[nodiscard]] std::shared_ptr<CodeSaverThread> begin_saving(const std::string& recording, const StashWords& words);
void end_saving(CodeSaverThread& saver, bool quiet);

/// What save_code() did, in lines for standard error; `quiet`: only what was not kept.
[[nodiscard]] std::string saved_text(const SaveReport& report, const std::string& stash, bool quiet);

}  // namespace ptd::cli
