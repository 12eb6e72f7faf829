// UnitSteps: see unit_steps.h.
#include "analysis/walk/unit_steps.h"

#include <algorithm>
#include <utility>

#include "analysis/flow_clock.h"
#include "recording/data/recording_data.h"

namespace ptd {
namespace {

// Returns what was executed from the start of the unit's own flow to `position`, without what is counted.
FlowPosition uncounted(const FlowPosition& position, const FlowPosition& start, const FlowPosition& counted) {
  const auto rest = [](uint64_t all, uint64_t some) { return all - std::min(all, some); };
  return {rest(rest(position.instructions, start.instructions), counted.instructions),
          rest(rest(position.cycles, start.cycles), counted.cycles)};
}

}  // namespace

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
  const FlowPart last = std::exchange(part_, part);
  if (last == part) return;
  if (last == FlowPart::before) flow_.set_part(FlowPart::own);  // a unit without flow of its own has this start too
  if (part == FlowPart::after) flow_.set_part(FlowPart::after);
}

// The sums of all steps so far are the position of the last one: what dropped steps executed went to the next one.
void UnitSteps::give() {
  flow_.give(steps_);
  for (FlowStep& step : steps_) {
    position_.instructions += step.instructions;
    position_.cycles += step.cycles;
    if (step.part != FlowPart::own) continue;
    const FlowPosition own = uncounted(position_, flow_.part_starts().front(), counted_);
    step.instructions = static_cast<uint32_t>(std::min<uint64_t>(own.instructions, UINT32_MAX));
    step.cycles = own.cycles;
    counted_.instructions += step.instructions;
    counted_.cycles += step.cycles;
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
  set_part(is_last ? FlowPart::own : FlowPart::after);
  flow_.finish(is_last ? end_of_flow(plan_, unit_.stream) : kTimeMin);
  give();
  builder_.flush();
  write_items();
  if (!file_) return {};
  if (const auto error = shrunk_error(shrunk_before_)) return *error;
  const std::span<const FlowPosition> starts = flow_.part_starts();
  const FlowPosition tail = uncounted(is_last ? flow_.end() : starts[1], starts[0], counted_);
  return std::exchange(file_, nullptr)->finish(tail, flow_.timed(), builder_.totals(), functions_);
}

void UnitSteps::give_calls(std::vector<FinishedCall>& calls) {
  calls.insert(calls.end(), builder_.calls.begin(), builder_.calls.end());
  builder_.calls.clear();
}

}  // namespace ptd
