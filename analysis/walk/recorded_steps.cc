// RecordedSteps: see recorded_steps.h.
#include "analysis/walk/recorded_steps.h"

#include <algorithm>
#include <utility>

#include "recording/bundle/plan.h"
#include "recording/data/recording_data.h"

namespace ptd {

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
  for (uint32_t i = 0; i < units.size(); ++i) {
    if (by_unit[i].empty() && count++ < kNamed) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
    files.by_stream[units[i].stream].push_back({i, by_unit[i]});
  }
  if (count != 0)
    return Error{ErrorCode::missing_part,
                 "the steps of " + std::to_string(count) + " of " + std::to_string(units.size()) + " units are missing: " + missing +
                     (count > kNamed ? ", ..." : ""),
                 0};
  return files;
}

// Opens the next file. To follow every step, only the names and the end of the file with the groups are read.
Status RecordedSteps::begin(FunctionTable& functions) {
  const StepFiles::File& file = files_[at_++];
  auto opened = StepFileReader::open(file.path);
  if (!opened) return opened.error();
  reader_ = std::move(*opened);
  unit_ = file.unit;
  if (!follows_all_) return {};
  auto all = AllStepsReader::open(file.path, reader_->head());
  if (!all) return all.error();
  all_steps_ = std::move(*all);
  StepItems unused;
  FunctionProfile unused_totals;
  for (;;) {
    const Result<bool> more = reader_->next(unused, functions, unused_totals);
    if (!more) return more.error();
    if (!more.value()) return {};
    unused.clear();
  }
}

// The first step has what was executed after the last step of the unit before. It is in no group: a group comes after a step of its
// context.
void RecordedSteps::carry(StepItems& items) {
  if (items.steps.empty()) return;
  FlowStep& first = items.steps.front();
  first.instructions = static_cast<uint32_t>(std::min<uint64_t>(first.instructions + left_.instructions, UINT32_MAX));
  first.cycles += left_.cycles;
  left_ = {};
}

Result<bool> RecordedSteps::next(StepItems& items, FunctionTable& functions, FunctionProfile& totals) {
  for (;;) {
    if (!reader_) {
      if (at_ >= files_.size()) return false;
      if (Status status = begin(functions); !status) return status.error();
    }
    const Result<bool> more = follows_all_ ? all_steps_->next(items.steps, reader_->functions()) : reader_->next(items, functions, totals);
    if (!more) return more;
    carry(items);
    if (more.value()) return true;
    left_.instructions += reader_->tail().instructions;
    left_.cycles += reader_->tail().cycles;
    timed_ = timed_ || reader_->timed();
    reader_.reset();
    all_steps_.reset();
  }
}

Status RecordedSteps::expand(const CallGroup& group, std::vector<FlowStep>& steps) {
  if (!all_steps_) {
    auto all = AllStepsReader::open(reader_->path(), reader_->head());
    if (!all) return all.error();
    all_steps_ = std::move(*all);
  }
  return all_steps_->read(group.first_step, group.steps, steps, reader_->functions());
}

}  // namespace ptd
