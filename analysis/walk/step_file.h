// Step files: the steps of one unit's calls, so that calls can be followed across units. Format: docs/FORMAT.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/call_flow.h"
#include "analysis/walk/step_wire.h"
#include "image/base/mapped_file.h"
#include "image/base/whole_file.h"
#include "ptdecode/error.h"
#include "ptdecode/function_profile.h"
#include "ptdecode/function_table.h"

namespace ptd {

/// What the steps of a file are of.
struct StepFileHead {
  uint64_t plan = 0;  ///< PlanData::id
  uint32_t unit = 0;  ///< index into PlanData::units
};

/// The file with all steps of a unit, beside that with its groups. A merge rarely needs it.
[[nodiscard]] inline std::string all_steps_path(const std::string& path) { return path + ".all"; }

/// Writes the files of a unit, which finish() makes visible. Not thread-safe.
class StepFileWriter {
 public:
  /// `all`: writes all_steps_path() too. Errors: those of WholeFile.
  static Result<std::unique_ptr<StepFileWriter>> create(const std::string& path, const StepFileHead& head, bool all);
  /// Adds one of all steps, if these are written. Its instructions and cycles are those since the step before of the same unit, or since
  /// its start.
  void add(const FlowStep& step, const FunctionTable& functions);
  /// Adds what has become of the steps that were added.
  void add(const StepItems& items, const FunctionTable& functions);
  /// `tail`: what was executed after the last step. `timed`: CallFlow::timed(). `totals`: of the calls of all groups. Errors: those of
  /// WholeFile.
  [[nodiscard]] Status finish(const FlowPosition& tail, bool timed, const FunctionProfile& totals, const FunctionTable& functions);

 private:
  StepFileWriter() = default;
  uint64_t number_of(FunctionId id, const FunctionTable& functions);
  void put_again(const FunctionTable& functions);
  void add_group(const StepItems& items, const CallGroup& group, const FunctionTable& functions);
  void put_names(ByteWriter& out);
  void put_items();
  void put_all_steps();
  void put_totals(const FunctionProfile& totals, const FunctionTable& functions);
  std::unique_ptr<WholeFile> file_, all_file_;
  ByteWriter names_, items_, all_steps_;  // of the next blocks
  uint64_t new_names_ = 0, new_items_ = 0, items_count_ = 0, steps_ = 0, first_step_ = 0;
  std::vector<uint64_t> numbers_;  // by id: 1 + number in the file; 0: not yet
  /// What was written of a function.
  struct Written {
    FunctionCode::State state = FunctionCode::State::unknown;
    size_t names = 0;
    friend bool operator==(const Written&, const Written&) = default;
  };
  std::vector<Written> written_;  ///< by id
  uint64_t functions_ = 0;
  StepCoder coder_, all_coder_;
  uint64_t group_end_ = 0;  // the step after the last group
};

/// Reads the file with the groups block by block. Not thread-safe.
class StepFileReader {
 public:
  /// Errors: those of MappedFile; bad_magic, unsupported_version, truncated, bad_format.
  static Result<std::unique_ptr<StepFileReader>> open(const std::string& path);
  [[nodiscard]] const StepFileHead& head() const { return head_; }
  /// Appends the next steps and groups; functions are added to `functions`, and the totals of finished calls to `totals`. False: there are
  /// no more, tail() and timed() are known. Errors: bad_checksum, bad_format, truncated.
  [[nodiscard]] Result<bool> next(StepItems& items, FunctionTable& functions, FunctionProfile& totals);
  [[nodiscard]] const FlowPosition& tail() const { return tail_; }
  [[nodiscard]] bool timed() const { return timed_; }
  [[nodiscard]] const std::string& path() const { return blocks_.path(); }
  /// Functions by number in both files, as far as next() has read.
  [[nodiscard]] const std::vector<FunctionId>& functions() const { return ids_; }

 private:
  StepFileReader() = default;
  void read_names(ByteReader& in, FunctionTable& functions);
  void read_group(ByteReader& in, StepItems& items);
  void read_totals(ByteReader& in, FunctionProfile& totals) const;
  StepBlocks blocks_;
  StepFileHead head_;
  std::vector<FunctionId> ids_;  // by number
  StepCoder coder_;
  uint64_t items_ = 0, group_end_ = 0;
  uint32_t groups_ = 0;
  FlowPosition tail_;
  bool timed_ = false;
};

/// Reads the file with all steps. Not thread-safe.
class AllStepsReader {
 public:
  /// `path`: of the file with the groups. Errors: as StepFileReader; missing_part if there is none; wrong_recording if it is of another
  /// unit.
  static Result<std::unique_ptr<AllStepsReader>> open(const std::string& path, const StepFileHead& head);
  /// Appends the next steps. `functions`: StepFileReader::functions(). False: there are no more. Errors: bad_checksum, bad_format,
  /// truncated.
  [[nodiscard]] Result<bool> next(std::vector<FlowStep>& steps, const std::vector<FunctionId>& functions);
  /// Appends `count` steps from number `first` on. Groups are asked for in order. Errors: the same; bad_format if there are fewer.
  [[nodiscard]] Status read(uint64_t first, uint64_t count, std::vector<FlowStep>& steps, const std::vector<FunctionId>& functions);

 private:
  AllStepsReader() = default;
  Result<bool> open_block();
  Status take(uint64_t count, std::vector<FlowStep>& steps, const std::vector<FunctionId>& functions);
  StepBlocks blocks_;
  // The block that was opened last, of which the steps up to `count_` were taken. The names of later ones may not be known yet.
  std::vector<std::byte> content_;
  ByteReader in_{{}};
  StepCoder coder_;
  uint64_t left_ = 0, count_ = 0;
  std::vector<FlowStep> taken_;  ///< by read(), of the block
};

}  // namespace ptd
