// UnitSteps: see unit_steps.h.
#include "analysis/walk/unit_steps.h"

#include <algorithm>
#include <utility>

#include "analysis/flow_clock.h"
#include "recording/data/recording_data.h"

namespace ptd {

UnitSteps::UnitSteps(const Recording& plan, uint32_t unit)
    : plan_(plan),
      number_(unit),
      unit_(units_of(plan)[unit]),
      schedule_(plan.contexts()),
      functions_(true),
      flow_(plan.symbolizer(), plan.timeline(), functions_, plan.streams()[unit_.stream].cpu, plan.streams()[unit_.stream].tid,
            flow_clock(plan, unit_.stream, schedule_)) {}

Status UnitSteps::write_to(const std::string& path, bool all) {
  auto file = StepFileWriter::create(path, {data_of(plan_).plan->id, number_}, all);
  if (!file) return file.error();
  file_ = std::move(*file);
  return {};
}

void UnitSteps::take(const Batch& batch, const BlockTable& blocks, const AuxSegment& segment) {
  const uint64_t offset = segment.stream_offset_bytes;
  if (std::exchange(segment_, offset) != offset) {
    set_part(offset < unit_.first_offset ? FlowPart::before : unit_.owns(offset) ? FlowPart::own : FlowPart::after);
    flow_.begin_segment(segment, begins_window(plan_, unit_.stream, segment));
  }
  flow_.take(batch, blocks);
  give();
}

void UnitSteps::set_part(FlowPart part) {
  if (std::exchange(part_, part) == part) return;
  if (part == FlowPart::own) own_first_ = flow_.position();
  if (part == FlowPart::after) own_end_ = flow_.position();
  flow_.set_part(part);
}

// The instructions of all steps so far are the position of the last one: those of steps that were dropped went to the next one.
void UnitSteps::give() {
  flow_.give(steps_);
  for (FlowStep& step : steps_) {
    position_ += step.instructions;
    if (step.part != FlowPart::own) continue;
    const uint64_t since_first = std::max(position_, own_first_) - own_first_;
    step.instructions = static_cast<uint32_t>(std::min<uint64_t>(since_first - std::min(since_first, counted_), UINT32_MAX));
    counted_ += step.instructions;
    if (file_) file_->add(step, functions_);
    builder_.take(step);
  }
  steps_.clear();
  write_items();
}

void UnitSteps::write_items() {
  if (file_) file_->add(builder_.items, functions_);
  builder_.items.clear();
}

Status UnitSteps::finish() {
  const bool is_last = unit_.to_offset == Recording::kStreamEnd && unit_.last_offset == Recording::kStreamEnd;
  if (!is_last) set_part(FlowPart::after);
  flow_.finish(is_last ? end_of_flow(plan_, unit_.stream) : kTimeMin);
  give();
  builder_.flush();
  write_items();
  if (is_last) own_end_ = flow_.position();
  if (!file_) return {};
  if (const auto error = shrunk_error(shrunk_before_)) return *error;
  const uint64_t own = own_end_ - own_first_;
  return std::exchange(file_, nullptr)->finish(own - std::min(own, counted_), flow_.timed(), builder_.totals(), functions_);
}

void UnitSteps::give_calls(std::vector<FinishedCall>& calls) {
  calls.insert(calls.end(), builder_.calls.begin(), builder_.calls.end());
  builder_.calls.clear();
}

}  // namespace ptd
