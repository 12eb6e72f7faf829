// Runs a program in qemu-user with the plugin and makes a recording of it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "capture/emulate/user_recording.h"
#include "ptdecode/error.h"

namespace ptd::emulate {

struct EmulateOptions {
  UserConfig config;
  uint8_t psb_period = 3;  ///< PSBFreq: 2^(psb_period + 11) bytes
  std::string output = "perf.data";
  std::string truth_folder;          ///< empty: no ground truth
  std::string qemu;                  ///< path or name of qemu-x86_64; empty: the one in PATH
  std::string plugin;                ///< path of ptdecode-emulate.so; empty: beside this program, or where it was installed
  std::vector<std::string> command;  ///< program and arguments
  /// Called once, on another thread, if recording stops while the program runs; `folder` is the working folder.
  std::function<void(const std::string& folder)> on_stopped;
  /// Called once if processes that the program started still run after it has ended. Ctrl-C, SIGTERM and SIGHUP end them from then on.
  std::function<void(const std::vector<pid_t>& pids)> on_survivors;
  std::string work_parent;  ///< where the working folder is made; empty: beside the output, else TMPDIR or /tmp
};

struct EmulateResult {
  int exit_status = 0;  ///< of the program; 128 + signal if one ended it
  double run_s = 0;     ///< the run, without the writing of the recording
  std::string output;   ///< the recording
  RecordingSummary summary;
};

/// The file that runs a command, and what it is passed.
struct ProgramToRun {
  std::string path;
  std::vector<std::string> words;
  uint16_t machine = 0;  ///< of its ELF file, or of its interpreter's
};

/// Returns the file of a program as a shell finds it. Errors: not_found if it does not exist; others if it exists and cannot be run.
Result<std::string> find_program(const std::string& name);

/// Looks a command up as a shell does. Errors: not_found if the program or its interpreter does not exist; others if it exists and cannot
/// be run.
Result<ProgramToRun> find_program_to_run(const std::vector<std::string>& words);

/// Waits for the program and all that it started, then writes the recording, which a second process does if this one is killed. The program
/// has our standard input and output. Errors: of find_program_to_run(); unsupported without emulator or plugin; of the file system.
Result<EmulateResult> emulate(const EmulateOptions& options);

/// Makes the recording of a working folder whose recorder and second process were both killed; `output` "": where it was to be. Errors: of
/// the file system; unsupported while a recorder or the program still runs.
Result<EmulateResult> recover(const std::string& folder, const std::string& output);

}  // namespace ptd::emulate
