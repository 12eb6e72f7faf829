// What `record` does with the kernel's events: options, and the recording itself.
#pragma once

#include <string>
#include <vector>

#include "cli/options/cli_app.h"
#include "cli/report/stash_words.h"
#include "ptdecode/error.h"

namespace ptd::cli {

/// As typed.
struct LiveWords {
  std::string event, output = "perf.data", pids, tids, cpus, sizes, filter, detach, aux_sample, sample_on, trigger;
  std::vector<std::string> pause_on, resume_on;
  std::vector<std::string> command;
  bool sideband = false, everything = false, tree = false, per_thread = false, no_inherit = false, directory = false, kcore = false;
  bool snapshot = false, compress = false, quiet = false, no_announce = false;
  int level = 1;
  uint64_t trigger_most = 1;
};

/// Adds -e, -p, -a and the rest to a command.
void add_live_options(CLI::App& command, LiveWords& words);
/// Returns the bytes of trace of a sample that --aux-sample=`text` requests; 0: none. Errors: bad_option.
[[nodiscard]] Result<uint64_t> aux_sample_bytes(const std::string& text);
/// Reports why a program cannot be started; returns the exit status that env(1) has then.
int refuse_program(const Error& error);
/// Records until the end; the exit status is the program's, or what went wrong.
int record_live(const LiveWords& words, const StashWords& stash);

}  // namespace ptd::cli
