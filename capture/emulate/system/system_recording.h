// Joins what an emulated machine left: the records of its kernel, the packets and the ground truth of its cpus.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "perfio/format/records.h"
#include "ptdecode/error.h"

namespace ptd::emulate {

struct SystemRecordingOptions {
  std::string work;          ///< the working folder: cpuN.pt and so on of the plugin, and guest/ with the records
  std::string output;        ///< of the recording, perf's directory form
  std::string truth_folder;  ///< "": no ground truth
  uint64_t sync_bytes = 0;   ///< arm64: bytes of trace between synchronisations
  bool ete = false;          ///< arm64: an ETE trace in place of ETMv4
  std::vector<std::string> command_line;
};

struct SystemSummary {
  uint64_t instructions = 0, kernel_instructions = 0, packet_bytes = 0, cpus = 0, irregular = 0, lost_records = 0, text_pokes = 0;
  uint64_t unknown_mode = 0;  ///< times that code ran in a segment of the program's own, which is not traced
  /// Times that the machine read its clock, and those at which the trace had another time.
  uint64_t clock_reads = 0, clock_reads_wrong = 0;
};

/// Writes the recording: the kernel's records in order of time, an AUX record at the end of each stretch of trace, the trace, and the
/// copies of the kernel's code from before (kcore_dir) and after (kcore_dir_after). Errors: missing_part if the machine left no records or
/// had no stable clock; no_space if the plugin could not write its files; of the file system.
[[nodiscard]] Result<SystemSummary> write_system_recording(const SystemRecordingOptions& options);

/// Returns the time of the machine's records at a tick of its clock, which counts all its bits.
[[nodiscard]] uint64_t to_ns(const perfio::TimeConvRecord& clock, uint64_t tsc);
/// Returns the numbers that the plugin wrote to its file `summary`, by name; empty if it cannot be read.
[[nodiscard]] std::map<std::string, uint64_t> read_summary(const std::string& path);

}  // namespace ptd::emulate
