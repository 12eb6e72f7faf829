// Survey: metadata read from a recording's records without decoding it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/recording.h"

namespace ptd {

/// One trace stream, as recorded.
struct SurveyStream {
  int32_t cpu = -1, tid = -1;  ///< one of them is known, except in a snapshot that does not name its cores
  std::string source;          ///< CoreSight: name, protocol and id of the trace source
  uint64_t size_bytes = 0;
  Interval time;  ///< from its first PSB or Arm sync point, or the first AUX record, to its last; unbounded if none has a time
};

/// Samples of one event that hold trace (PERF_SAMPLE_AUX).
struct SurveyWindows {
  uint64_t samples = 0, without_trace = 0;  ///< without_trace: samples that hold no trace
  uint64_t trace_bytes = 0;                 ///< sum over all samples; bytes in several samples count several times
};

/// A file whose code was mapped, under one build id.
struct SurveyImage {
  std::string path, build_id;  ///< build_id: hex, "" if not recorded
  uint64_t mappings = 0, size_bytes = 0;
  bool found = false;
  std::string reason;        ///< why it was not found
  std::string from;          ///< where it was found: "path", "stash", "build-id cache", ...
  std::string file;          ///< the file that was found
  bool by_id_alone = false;  ///< it has the recorded build id, which a changed copy keeps, and nothing else proves its content
};

/// A virtual machine of which the recording has records or code.
struct SurveyGuest {
  int32_t pid = 0;                         ///< of the process that runs it; 0: not known
  std::optional<uint64_t> text_pokes = 0;  ///< not known of a bundle, which has no records
  bool kernel_copy = false;                ///< the recording contains, or the options name, a copy of its kernel's text
};

/// Metadata of a recording. Fields are empty or 0 if it does not record them.
struct Survey {
  std::string form;   ///< "perf.data file", "perf.data directory", "bundle", "LLDB trace bundle", "CoreSight snapshot", "raw trace"
  std::string trace;  ///< "Intel PT", "CoreSight ETMv4", "CoreSight ETMv3, PTM"
  std::string hostname, kernel, cpu, cpuid, perf_version;
  std::vector<std::string> command;
  uint32_t cpus_online = 0;
  std::string clock;            ///< "perf's own", "monotonic", ...; "" for forms that have none
  bool has_wall_clock = false;  ///< the recording relates that clock to the time of day
  int64_t wall_offset_ns = 0;   ///< time of day = time + this, with has_wall_clock
  std::string timing;           ///< "TSC, MTC, CYC"; CoreSight "timestamps, cycle counts": the configured timing packets
  bool traces_user = true, traces_kernel = true, snapshot = false;
  std::string filter;  ///< the address filter, as given to the recorder
  uint64_t file_bytes = 0, trace_bytes = 0;
  Interval time;  ///< of the records with a time; unbounded if there are none
  std::vector<SurveyStream> streams;
  std::vector<ThreadInfo> threads;                       ///< by pid and tid, with the last name; also of guests
  std::vector<SurveyImage> images;                       ///< missing ones first, then by size
  bool kernel_copy = false;                              ///< the recording contains a copy of its own machine's kernel text (--kcore)
  std::optional<uint64_t> text_pokes = 0, switches = 0;  ///< of the recording's own machine; not known of forms without records of perf
  std::vector<SurveyGuest> guests;
  std::map<std::string, uint64_t> other_events;  ///< samples of other events than the trace, by name
  std::map<std::string, SurveyWindows> windows;  ///< samples of events whose samples hold trace, by name
  LostRecords lost;
  std::vector<std::string> warnings;
};

/// Reads the records of a perf.data file or directory. Other forms are small and are opened as a whole. A pipe is an error, because it
/// cannot be read again afterwards. Errors: those of Recording::open().
[[nodiscard]] PTD_API Result<Survey> survey(const OpenOptions& options);
/// Returns the survey of an open recording.
[[nodiscard]] PTD_API Survey survey_of(const Recording& recording);
/// Returns the time of day minus the time of the recording, in nanoseconds; nothing if the recording has no wall clock (perf record -k).
[[nodiscard]] PTD_API std::optional<int64_t> wall_clock_offset(const Recording& recording);

}  // namespace ptd
