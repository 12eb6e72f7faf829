// UnitSteps: follows the calls of one unit of a plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/call_flow.h"
#include "analysis/thread_schedule.h"
#include "analysis/walk/group_builder.h"
#include "analysis/walk/step_file.h"
#include "image/base/shrunk_files.h"
#include "recording/bundle/plan.h"

namespace ptd {

/// Fed with the flow of all segments that the unit decodes. A step belongs to the unit if the flow that made it is in a segment of its own.
/// Not thread-safe. The plan must outlive it.
class UnitSteps {
 public:
  UnitSteps(const Recording& plan, uint32_t unit);
  /// Writes the steps to `path`, and `all` of them to all_steps_path(path). They appear with finish(). Call before take(). Errors: those of
  /// StepFileWriter.
  [[nodiscard]] Status write_to(const std::string& path, bool all);
  /// give_calls() is not called.
  void drop_calls() { builder_.drop_calls(); }
  void take(const Batch& batch, const BlockTable& blocks, const AuxSegment& segment);
  /// The flow is over. Errors: those of StepFileWriter; changed if a file became shorter meanwhile.
  [[nodiscard]] Status finish();
  /// Moves the calls that ended since the last time, of groups that are over, to `calls`.
  void give_calls(std::vector<FinishedCall>& calls);
  [[nodiscard]] FunctionTable& functions() { return functions_; }

 private:
  void set_part(FlowPart part);
  void give();
  void write_items();

  const Recording& plan_;
  const uint32_t number_;
  const PlanUnit unit_;
  const ThreadSchedule schedule_;
  FunctionTable functions_;
  CallFlow flow_;
  GroupBuilder builder_;
  std::unique_ptr<StepFileWriter> file_;
  const uint64_t shrunk_before_ = shrunk_file_count();
  FlowPart part_ = FlowPart::before;
  std::vector<FlowStep> steps_;
  uint64_t segment_ = ~uint64_t{0};
  FlowPosition position_;  ///< of the last step
  FlowPosition counted_;   ///< of the unit's own steps
};

}  // namespace ptd
