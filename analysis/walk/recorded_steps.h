// RecordedSteps: the steps of one stream that units left in files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/walk/step_file.h"
#include "ptdecode/recording.h"

namespace ptd {

/// The files of all units of a plan.
struct StepFiles {
  /// A unit's file with the groups of its calls.
  struct File {
    uint32_t unit = 0;
    std::string path;
  };
  std::map<uint32_t, std::vector<File>> by_stream;  ///< in order of the units
};

/// Looks at the files `paths`, in any order and with repeats. Errors: wrong_recording for a file of another plan, missing_part if units are
/// missing, and those of StepFileReader.
[[nodiscard]] Result<StepFiles> collect_steps(const Recording& plan, const std::vector<std::string>& paths);

/// Not thread-safe.
class RecordedSteps {
 public:
  /// `all_steps`: CallWalkOptions::all_steps.
  RecordedSteps(const std::vector<StepFiles::File>& files, bool all_steps) : files_(files), follows_all_(all_steps) {}
  /// Appends the next items. The totals of units that are over are added to `totals`. False: there are no more. Errors: those of
  /// StepFileReader and AllStepsReader.
  [[nodiscard]] Result<bool> next(StepItems& items, FunctionTable& functions, FunctionProfile& totals);
  /// Appends the steps of a group of the last items. Errors: those of AllStepsReader.
  [[nodiscard]] Status expand(const CallGroup& group, std::vector<FlowStep>& steps);
  [[nodiscard]] bool timed() const { return timed_; }
  /// Returns the unit of the last items.
  [[nodiscard]] uint32_t unit() const { return unit_; }

 private:
  [[nodiscard]] Status begin(FunctionTable& functions);
  void carry(StepItems& items);
  const std::vector<StepFiles::File>& files_;
  const bool follows_all_;
  size_t at_ = 0;
  std::unique_ptr<StepFileReader> reader_;
  std::unique_ptr<AllStepsReader> all_steps_;
  uint32_t unit_ = 0;
  FlowPosition left_;  ///< what was executed since the last step
  bool timed_ = false;
};

}  // namespace ptd
