// Plans: recordings without their trace, divided into units that are decoded on their own. Format: docs/FORMAT.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recording/data/open_request.h"
#include "recording/data/plan_data.h"

namespace ptd {

struct PlanOptions {
  std::string output_path;
  uint64_t unit_bytes = 0;          ///< about so many bytes of trace in a unit; 0: kUnitBytes
  uint32_t units = 0;               ///< or about so many units in all; 0: by size
  const RawOptions* raw = nullptr;  ///< set: the input is a raw capture
};
inline constexpr uint64_t kUnitBytes = 128ULL << 20;

struct PlanReport {
  uint64_t file_bytes = 0;                       ///< of the plan
  uint64_t trace_bytes = 0, embedded_bytes = 0;  ///< of all streams; of those that no file holds as they are, and the plan contains
  uint64_t segments = 0;
  uint32_t units = 0;
  std::vector<TraceFile> files;
  std::vector<std::string> warnings;  ///< of the recording
};

/// Opens the recording that `options` names, reads its whole trace once without decoding it, and writes its plan. The plan contains the
/// code of all files that were mapped and that a decode on this machine would read; a bundle is stricter. The output is replaced only on
/// success. Errors: those of write_bundle().
[[nodiscard]] Result<PlanReport> write_plan(const OpenRequest& options, const PlanOptions& plan);

/// Returns whether the recording is a plan.
[[nodiscard]] bool is_plan(const Recording& recording);
/// Returns the units of a recording that is a plan, in order of streams and offsets; none for other recordings.
[[nodiscard]] const std::vector<PlanUnit>& units_of(const Recording& recording);
/// Returns the number by which results are known to be of this plan; 0 if the recording is no plan.
[[nodiscard]] uint64_t plan_id(const Recording& recording);
/// Returns the files with the trace of a plan.
[[nodiscard]] const std::vector<TraceFile>& trace_files_of(const Recording& recording);
/// Returns the bytes that decoding `unit` reads, by file and offset, each once. Not those that the plan contains.
[[nodiscard]] std::vector<FileRange> ranges_of(const Recording& recording, const PlanUnit& unit);
/// Returns the files and units of a plan as a JSON object: docs/FLEET.md.
[[nodiscard]] std::string plan_json(const Recording& recording);
/// Returns an error unless the bytes of `unit` are those that were planned, by a checksum of its beginning. Errors: wrong_recording.
[[nodiscard]] Status check_unit(const Recording& recording, const PlanUnit& unit);
/// Does so for all units of a recording that is a plan. Opening a plan does this, unless it is opened for its units or without its trace.
[[nodiscard]] Status check_units(const Recording& recording);

}  // namespace ptd
