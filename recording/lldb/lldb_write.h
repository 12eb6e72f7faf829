// Writes a recording as a trace bundle of LLDB: a folder with trace.json, which `trace load` reads. Source: [LLDB] "trace schema intel-pt".
// Private to the project.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/recording.h"
#include "recording/data/open_request.h"

namespace ptd {

struct LldbOptions {
  std::string folder;  ///< to create; it may exist if it is empty
  Interval time;       ///< only the segments that cover it, and one more on either side
};

/// What was written.
struct LldbReport {
  uint64_t trace_bytes = 0, instructions = 0;
  uint64_t left_out_instructions = 0;  ///< of the idle task and of threads that are not known
  size_t processes = 0, threads = 0, cpus = 0, files = 0;
  bool is_kernel = false;  ///< LLDB shows each cpu of the kernel as a thread
  std::vector<std::string> warnings;
};

/// Opens the recording, decodes it, and writes its trace and the code that ran. The folder appears only on success.
///
/// The format has Intel PT, one content for each address of a process, and either a trace for each thread, or one for each cpu with its
/// context switches. The code that ran is compared with what LLDB will read, so that LLDB never follows other code than the recording's.
/// Errors: those of Recording::open; unsupported_trace for another trace; not_recorded without the times that traces of cpus need, or
/// without threads; unsupported if code that ran has several contents; bad_time_window; already_exists; those of writing.
[[nodiscard]] Result<LldbReport> write_lldb_bundle(const OpenRequest& options, const LldbOptions& bundle);

}  // namespace ptd
