// Converts the plugin's files to a recording: perf.data, jitdumps, ground truth.
#pragma once

#include <string>
#include <vector>

#include "capture/emulate/shared/user_config.h"
#include "ptdecode/error.h"
#include "ptdecode/time_conversion.h"

namespace ptd::emulate {

struct RecordingOptions {
  UserConfig config;
  bool aarch64 = false;      ///< CoreSight: ETMv4 in place of Intel PT
  std::string work_folder;   ///< where the plugin wrote
  std::string output;        ///< the perf.data
  std::string truth_folder;  ///< empty: no ground truth
  TimeConversion time;
  uint8_t psb_period = 3;  ///< PSBFreq, for the event's config
  std::vector<std::string> command_line;
};

/// What was recorded.
struct RecordingSummary {
  uint64_t instructions = 0, threads = 0, processes = 0, programs = 0;
  uint64_t packet_bytes = 0;  ///< of trace in the recording
  bool sampled = false;       ///< it has samples of the trace only
  uint64_t samples = 0;
  uint64_t code_loads = 0;  ///< jitdump records: code that is in no file
  uint64_t overflows = 0, irregular = 0;
  uint64_t killed_threads = 0;  ///< whose last instructions are not known: those of the block that they were killed in
  std::vector<std::string> warnings;
};

/// Writes OUTPUT, for processes with code of their own OUTPUT.jit/N/jit-PID.dump, and TRUTH/truth.tidN.ptt. Errors: of the file system;
/// file_format if the plugin left nothing.
Result<RecordingSummary> write_recording(const RecordingOptions& options);

}  // namespace ptd::emulate
