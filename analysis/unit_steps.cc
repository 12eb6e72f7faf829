// The steps of a unit of a plan: written by who decodes it, collected by who follows calls.
#include <algorithm>
#include <set>
#include <utility>

#include "analysis/flow_clock.h"
#include "analysis/step_file.h"
#include "analysis/thread_schedule.h"
#include "recording/bundle/plan.h"
#include "recording/data/recording_data.h"
#include "recording/parallel.h"

namespace ptd {
namespace {

/// Follows one unit. A step belongs to the unit if the flow that made it is in a segment of its own.
class UnitFollower {
 public:
  UnitFollower(const Recording& plan, const PlanUnit& unit)
      : plan_(plan),
        unit_(unit),
        schedule_(plan.contexts()),
        flow_(plan.symbolizer(), plan.timeline(), functions_, plan.streams()[unit.stream].cpu, plan.streams()[unit.stream].tid,
              flow_clock(plan, unit.stream, schedule_)) {}

  Status run(StepFileWriter& file, const std::function<bool()>& stopped) {
    auto decode = start_decode(plan_, {unit_.stream, unit_.from_offset, unit_.to_offset, 1});
    if (!decode) return decode.error();
    DecodedBatch next;
    while ((*decode)->next(next)) {
      if (stopped && stopped()) return Error{ErrorCode::cancelled, "the caller cancelled the operation", 0};
      begin(*next.segment);
      flow_.take(*next.batch, next.decoder->blocks());
      give(file);
    }
    const bool is_last = unit_.to_offset == Recording::kStreamEnd && unit_.last_offset == Recording::kStreamEnd;
    if (!is_last) set_part(FlowPart::after);
    flow_.finish(is_last ? plan_.streams()[unit_.stream].time.last : kTimeMin);
    give(file);
    if (is_last) own_end_ = flow_.position();
    return file.finish(own_end_ - own_first_ - std::min(own_end_ - own_first_, counted_), flow_.timed());
  }

 private:
  void begin(const AuxSegment& segment) {
    const uint64_t offset = segment.stream_offset_bytes;
    if (std::exchange(segment_, offset) == offset) return;
    set_part(offset < unit_.first_offset ? FlowPart::before : unit_.owns(offset) ? FlowPart::own : FlowPart::after);
    flow_.begin_segment(segment.time);
  }
  void set_part(FlowPart part) {
    if (std::exchange(part_, part) == part) return;
    if (part == FlowPart::own) own_first_ = flow_.position();
    if (part == FlowPart::after) own_end_ = flow_.position();
    flow_.set_part(part);
  }
  // The instructions of all steps so far are the position of the last one: those of steps that were dropped went to the next one.
  void give(StepFileWriter& file) {
    flow_.give(steps_);
    for (FlowStep& step : steps_) {
      position_ += step.instructions;
      if (step.part != FlowPart::own) continue;
      const uint64_t since_first = std::max(position_, own_first_) - own_first_;
      step.instructions = static_cast<uint32_t>(std::min<uint64_t>(since_first - std::min(since_first, counted_), UINT32_MAX));
      counted_ += step.instructions;
      file.add(step, functions_);
    }
    steps_.clear();
  }

  const Recording& plan_;
  const PlanUnit unit_;
  const ThreadSchedule schedule_;
  FunctionTable functions_;
  CallFlow flow_;
  FlowPart part_ = FlowPart::before;
  std::vector<FlowStep> steps_;
  uint64_t segment_ = ~uint64_t{0};
  uint64_t position_ = 0;                  ///< of the last step, in instructions
  uint64_t own_first_ = 0, own_end_ = 0;   ///< where the unit's own flow begins and ends
  uint64_t counted_ = 0;                   ///< instructions of its steps
};

}  // namespace

Status write_unit_steps(const Recording& plan, uint32_t unit, const std::string& path, const std::function<bool()>& stopped) {
  const PlanUnit& wanted = units_of(plan)[unit];
  auto file = StepFileWriter::create(path, {data_of(plan).plan->id, unit});
  if (!file) return file.error();
  return UnitFollower(plan, wanted).run(**file, stopped);
}

Result<StepFiles> collect_steps(const Recording& plan, const std::vector<std::string>& paths) {
  const std::vector<PlanUnit>& units = units_of(plan);
  std::vector<std::string> by_unit(units.size());
  for (const std::string& path : paths) {
    const auto reader = StepFileReader::open(path);
    if (!reader) return reader.error();
    const StepFileHead& head = (*reader)->head();
    if (head.plan != data_of(plan).plan->id || head.unit >= units.size())
      return Error{ErrorCode::wrong_recording, path + ": the steps are of another plan; decode its units again", 0};
    by_unit[head.unit] = path;
  }
  StepFiles files;
  std::string missing;
  size_t count = 0;
  constexpr size_t kNamed = 8;
  for (size_t i = 0; i < units.size(); ++i) {
    if (by_unit[i].empty() && count++ < kNamed) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
    files.by_stream[units[i].stream].push_back(by_unit[i]);
  }
  if (count != 0)
    return Error{ErrorCode::missing_part,
                 "the steps of " + std::to_string(count) + " of " + std::to_string(units.size()) + " units are missing: " + missing + (count > kNamed ? ", ..." : ""), 0};
  return files;
}

}  // namespace ptd
