// StepFile: the steps of one unit in a file, so that calls can be followed across units. Format: docs/FORMAT.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/call_flow.h"
#include "image/base/mapped_file.h"
#include "image/base/whole_file.h"
#include "ptdecode/error.h"
#include "ptdecode/function_table.h"
#include "recording/bundle/bundle_wire.h"

namespace ptd {

/// What the steps of a file are of.
struct StepFileHead {
  uint64_t plan = 0;  ///< PlanData::id
  uint32_t unit = 0;  ///< index into PlanData::units
};

/// Writes a file that finish() makes visible. Not thread-safe.
class StepFileWriter {
 public:
  /// Errors: those of WholeFile.
  static Result<std::unique_ptr<StepFileWriter>> create(const std::string& path, const StepFileHead& head);
  /// `step.instructions` are those since the step before of the same unit, or since its start.
  void add(const FlowStep& step, const FunctionTable& functions);
  /// `tail`: instructions after the last step. `timed`: CallFlow::timed(). Errors: those of WholeFile.
  [[nodiscard]] Status finish(uint64_t tail, bool timed);

 private:
  StepFileWriter() = default;
  uint64_t number_of(FunctionId id, const FunctionTable& functions);
  void put_block(uint64_t kind, Bytes content);
  void put_steps();
  std::unique_ptr<WholeFile> file_;
  ByteWriter names_, steps_;  // of the next block
  uint64_t new_names_ = 0, new_steps_ = 0, all_steps_ = 0;
  std::vector<uint64_t> numbers_;  // by id: 1 + number in the file; 0: not yet
  uint64_t functions_ = 0;
  FlowStep last_;
};

/// Reads a file block by block. Not thread-safe.
class StepFileReader {
 public:
  /// Errors: those of MappedFile; bad_magic, unsupported_version, truncated, bad_format.
  static Result<std::unique_ptr<StepFileReader>> open(const std::string& path);
  [[nodiscard]] const StepFileHead& head() const { return head_; }
  /// Appends the next steps; functions are added to `functions`. False: there are no more, tail() and timed() are known. Errors: bad_checksum,
  /// bad_format, truncated.
  [[nodiscard]] Result<bool> next(std::vector<FlowStep>& steps, FunctionTable& functions);
  [[nodiscard]] uint64_t tail() const { return tail_; }
  [[nodiscard]] bool timed() const { return timed_; }

 private:
  StepFileReader() = default;
  [[nodiscard]] Result<std::vector<std::byte>> block(uint64_t& kind);
  [[nodiscard]] Error damaged(ErrorCode code, const char* what) const;
  std::shared_ptr<const MappedFile> file_;
  uint64_t at_ = 0, count_ = 0;
  StepFileHead head_;
  std::vector<FunctionId> ids_;  // by number
  FlowStep last_;
  uint64_t tail_ = 0;
  bool timed_ = false;
};

/// The files of all units of a plan.
struct StepFiles {
  std::map<uint32_t, std::vector<std::string>> by_stream;  ///< in order of the units
};

class Recording;
struct PlanUnit;

/// Looks at the files `paths`, in any order and with repeats. Errors: wrong_recording for a file of another plan, missing_part if units are
/// missing, and those of StepFileReader.
[[nodiscard]] Result<StepFiles> collect_steps(const Recording& plan, const std::vector<std::string>& paths);

/// Decodes unit `unit` of `plan` and writes its steps to `path`. `stopped` is called now and then; true ends with the error `cancelled`.
/// Errors: those of check_unit() and StepFileWriter.
[[nodiscard]] Status write_unit_steps(const Recording& plan, uint32_t unit, const std::string& path, const std::function<bool()>& stopped);

}  // namespace ptd
