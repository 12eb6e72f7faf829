// Step files: see step_file.h.
#include "analysis/walk/step_file.h"

#include <algorithm>
#include <utility>

#include "analysis/walk/group_builder.h"

namespace ptd {
namespace {

constexpr uint64_t kGroupWord = 0;  // the first number of a group; that of a step is larger by kStepWords
constexpr uint64_t kStepWords = 1;

}  // namespace

Result<std::unique_ptr<StepFileWriter>> StepFileWriter::create(const std::string& path, const StepFileHead& head, bool all) {
  std::unique_ptr<StepFileWriter> writer(new StepFileWriter());
  auto file = WholeFile::open(path);
  if (!file) return file.error();
  writer->file_ = std::move(*file);
  put_step_header(*writer->file_, kStepsMagic, head.plan, head.unit);
  if (!all) return writer;
  auto all_file = WholeFile::open(all_steps_path(path));
  if (!all_file) return all_file.error();
  writer->all_file_ = std::move(*all_file);
  put_step_header(*writer->all_file_, kAllStepsMagic, head.plan, head.unit);
  return writer;
}

uint64_t StepFileWriter::number_of(FunctionId id, const FunctionTable& functions) {
  if (id == kNoFunction) return 0;
  if (id >= numbers_.size()) numbers_.resize(std::max<size_t>(id + 1, 2 * numbers_.size()));
  if (numbers_[id] != 0) return numbers_[id];
  names_.text(functions.info(id).name);
  names_.text(functions.info(id).module);
  const std::vector<std::string> names = functions.names(id);
  names_.number(names.size());
  for (const std::string& name : names) names_.text(name);
  const FunctionCode code = functions.code(id);
  names_.number(static_cast<uint64_t>(code.state));
  names_.text(code.code);
  names_.number(code.offset_bytes);
  ++new_names_;
  if (id >= written_.size()) written_.resize(numbers_.size());
  written_[id] = {code.state, names.size()};
  return numbers_[id] = ++functions_;
}

// A place of a function, or a name, may have been found after the function was written.
void StepFileWriter::put_again(const FunctionTable& functions) {
  for (FunctionId id = 0; id < written_.size(); ++id) {
    if (numbers_[id] == 0 || written_[id] == Written{functions.code(id).state, functions.names(id).size()}) continue;
    numbers_[id] = 0;
    (void)number_of(id, functions);
  }
}

void StepFileWriter::add(const FlowStep& step, const FunctionTable& functions) {
  // Functions have the same numbers whether all steps are written or not: the files may be made by different decodes.
  const uint64_t function = number_of(step.function, functions), from = number_of(step.from, functions);
  if (!all_file_) return;
  all_coder_.write(all_steps_, step, function, from, 0);
  ++steps_;
  if (all_steps_.bytes().size() >= kStepBlockBytes) put_all_steps();
}

void StepFileWriter::put_all_steps() {
  if (steps_ == first_step_) return;
  ByteWriter out;
  out.number(steps_ - first_step_);
  out.raw(all_steps_.bytes());
  put_step_block(*all_file_, StepBlock::steps, first_step_, out.bytes());
  all_steps_.clear();
  all_coder_.restart();
  first_step_ = steps_;
}

void StepFileWriter::add(const StepItems& items, const FunctionTable& functions) {
  auto group = items.groups.begin();
  for (size_t i = 0; i <= items.steps.size(); ++i) {
    for (; group != items.groups.end() && group->before == i; ++group) add_group(items, *group, functions);
    if (i == items.steps.size()) break;
    const FlowStep& step = items.steps[i];
    coder_.write(items_, step, number_of(step.function, functions), number_of(step.from, functions), kStepWords);
    ++new_items_;
  }
  if (items_.bytes().size() + names_.bytes().size() >= kStepBlockBytes) put_items();
}

void StepFileWriter::add_group(const StepItems& items, const CallGroup& group, const FunctionTable& functions) {
  ByteWriter& out = items_;
  out.number(kGroupWord);
  out.signed_number(static_cast<int64_t>(group.first.value - coder_.last().time.value));
  out.number(group.last.value - group.first.value);
  out.number(uint64_t{group.depth} << 2 | (group.user ? 2 : 0) | (group.cycles != 0 ? 1 : 0));
  out.number(group.instructions);
  out.number(group.outer_instructions);
  out.number(group.outer_ns);
  if (group.cycles != 0) {
    out.number(group.cycles);
    out.number(group.outer_cycles);
  }
  out.number(group.first_step - group_end_);
  out.number(group.steps);
  out.number(group.function_count);
  for (const CallGroup::Function& function : items.functions_of(group)) {
    out.number(number_of(function.id, functions));
    out.number(function.total_ns);
    out.number(function.instructions);
    if (group.cycles != 0) out.number(function.cycles);
  }
  coder_.last().time = group.last;
  group_end_ = group.first_step + group.steps;
  ++new_items_;
}

void StepFileWriter::put_names(ByteWriter& out) {
  out.number(std::exchange(new_names_, 0));
  out.raw(names_.bytes());
  names_.clear();
}

void StepFileWriter::put_items() {
  if (new_items_ == 0 && new_names_ == 0) return;
  ByteWriter out;
  put_names(out);
  out.number(new_items_);
  out.raw(items_.bytes());
  put_step_block(*file_, StepBlock::steps, 0, out.bytes());
  items_.clear();
  items_count_ += std::exchange(new_items_, 0);
}

void StepFileWriter::put_totals(const FunctionProfile& totals, const FunctionTable& functions) {
  ByteWriter out;
  uint64_t count = 0;
  const auto put = [&] {
    if (count == 0) return;
    ByteWriter block;
    put_names(block);
    block.number(std::exchange(count, 0));
    block.raw(out.bytes());
    put_step_block(*file_, StepBlock::totals, 0, block.bytes());
    out.clear();
  };
  for (FunctionId id = 0; id < totals.functions().size(); ++id) {
    const FunctionTotals& each = totals.functions()[id];
    if (each.calls == 0) continue;
    out.number(number_of(id, functions));
    for (const uint64_t sum :
         {each.calls, each.self_ns, each.total_ns, each.self_instructions, each.instructions, each.self_cycles, each.cycles})
      out.number(sum);
    const DurationCounts& durations = each.durations;
    uint64_t entries = 0, last = 0;
    durations.each([&](uint64_t, uint64_t) { ++entries; });
    out.flag(durations.is_exact());
    out.number(durations.max());
    out.number(durations.max_count());
    out.number(entries);
    durations.each([&](uint64_t value, uint64_t of) {
      out.number(durations.is_exact() ? value : value - last);
      if (!durations.is_exact()) out.number(of);
      last = value;
    });
    ++count;
    if (out.bytes().size() >= kStepBlockBytes) put();
  }
  put();
}

Status StepFileWriter::finish(const FlowPosition& tail, bool timed, const FunctionProfile& totals, const FunctionTable& functions) {
  put_all_steps();
  put_again(functions);
  put_items();
  put_totals(totals, functions);
  ByteWriter out;
  out.number(items_count_);
  out.number(tail.instructions);
  out.number(tail.cycles);
  out.flag(timed);
  put_step_block(*file_, StepBlock::end, 0, out.bytes());
  if (all_file_) {
    out.clear();
    out.number(steps_);
    put_step_block(*all_file_, StepBlock::end, steps_, out.bytes());
    if (Status status = all_file_->finish(); !status) return status;
  }
  return file_->finish();
}

Result<std::unique_ptr<StepFileReader>> StepFileReader::open(const std::string& path) {
  std::unique_ptr<StepFileReader> reader(new StepFileReader());
  if (Status status = reader->blocks_.open(path, kStepsMagic, reader->head_.plan, reader->head_.unit); !status) return status.error();
  return reader;
}

void StepFileReader::read_names(ByteReader& in, FunctionTable& functions) {
  for (uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const std::string name = in.text(), module = in.text();
    std::vector<std::string> names;
    for (uint64_t each = in.count(); each > 0 && in.ok(); --each) names.push_back(in.text());
    FunctionCode code;
    code.state = static_cast<FunctionCode::State>(in.number_to(static_cast<uint64_t>(FunctionCode::State::several)));
    code.code = in.text();
    code.offset_bytes = in.number();
    if (!in.ok()) return;
    const FunctionId id = functions.intern(name, module);
    if (names.size() > 1) functions.add_names(id, names);
    functions.add_code(id, code);
    ids_.push_back(id);
  }
}

void StepFileReader::read_group(ByteReader& in, StepItems& items) {
  FlowStep& last = coder_.last();
  CallGroup group;
  group.number = groups_++;
  group.pid = last.pid;
  group.tid = last.tid;
  group.cpu = last.cpu;
  group.space = last.space;
  group.first.value = last.time.value + static_cast<uint64_t>(in.signed_number());
  group.last.value = group.first.value + in.number_to(UINT64_MAX - group.first.value);
  const uint64_t word = in.number_to(uint64_t{UINT32_MAX} << 2);
  group.depth = static_cast<uint32_t>(word >> 2);
  group.user = (word & 2) != 0;
  const bool cycles = (word & 1) != 0;
  group.instructions = in.number();
  group.outer_instructions = in.number();
  group.outer_ns = in.number();
  if (cycles) {
    group.cycles = in.number();
    group.outer_cycles = in.number();
  }
  group.first_step = group_end_ + in.number_to(UINT64_MAX - group_end_);
  group.steps = in.number_to(std::min(GroupBuilder::kMostSteps, UINT64_MAX - group.first_step));
  group.before = items.steps.size();
  group.first_function = items.functions.size();
  group.function_count = in.count();
  for (size_t i = 0; i < group.function_count && in.ok(); ++i) {
    const uint64_t number = in.number_to(ids_.size());
    CallGroup::Function function{number == 0 ? kNoFunction : ids_[number - 1], in.number(), in.number(), 0};
    if (cycles) function.cycles = in.number();
    items.functions.push_back(function);
  }
  last.time = group.last;
  group_end_ = group.first_step + group.steps;
  if (in.ok()) items.groups.push_back(group);
}

void StepFileReader::read_totals(ByteReader& in, FunctionProfile& totals) const {
  for (uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const uint64_t number = in.number_to(ids_.size());
    FunctionTotals each;
    for (uint64_t* sum :
         {&each.calls, &each.self_ns, &each.total_ns, &each.self_instructions, &each.instructions, &each.self_cycles, &each.cycles})
      *sum = in.number();
    const bool exact = in.flag();
    const uint64_t max = in.number(), max_count = in.number();
    uint64_t last = 0;
    for (uint64_t entries = in.count(); entries > 0 && in.ok(); --entries) {
      if (exact) {
        each.durations.add(in.number());
      } else {
        last += in.number_to(DurationCounts::kMostClass - last);
        each.durations.add_class(last, in.number());
      }
    }
    if (!exact) each.durations.add_max(max, max_count);
    each.undated = each.calls - std::min(each.calls, each.durations.count());  // all were seen from start to end
    if (in.ok()) totals.of(number == 0 ? kNoFunction : ids_[number - 1]).add(each);
  }
}

Result<bool> StepFileReader::next(StepItems& items, FunctionTable& functions, FunctionProfile& totals) {
  const auto block = blocks_.next();
  if (!block) return block.error();
  ByteReader in(block->content);
  if (block->kind == StepBlock::end) {
    const uint64_t all = in.number();
    tail_.instructions = in.number();
    tail_.cycles = in.number();
    timed_ = in.flag();
    if (!in.done() || all != items_) return blocks_.damaged(ErrorCode::bad_format, "the end of the file of steps is inconsistent");
    return false;
  }
  if (block->kind == StepBlock::head) return blocks_.damaged(ErrorCode::bad_format, "unknown part of the file of steps");
  read_names(in, functions);
  if (block->kind == StepBlock::totals) {
    read_totals(in, totals);
  } else {
    for (uint64_t left = in.count(); left > 0 && in.ok(); --left, ++items_) {
      const uint64_t word = in.number_to(StepCoder::kMostWord + kStepWords);
      if (word == kGroupWord) {
        read_group(in, items);
        continue;
      }
      const FlowStep step = coder_.read(in, word - kStepWords, ids_);
      if (in.ok()) items.steps.push_back(step);
    }
  }
  if (!in.done()) return blocks_.damaged(ErrorCode::bad_format, "the steps are inconsistent");
  return true;
}

Result<std::unique_ptr<AllStepsReader>> AllStepsReader::open(const std::string& path, const StepFileHead& head) {
  std::unique_ptr<AllStepsReader> reader(new AllStepsReader());
  const std::string all = all_steps_path(path);
  StepFileHead own;
  if (Status status = reader->blocks_.open(all, kAllStepsMagic, own.plan, own.unit); !status) {
    if (status.error().code != ErrorCode::not_found) return status.error();
    return Error{ErrorCode::missing_part, all + " is missing: calls of this unit must be followed step by step; decode its steps again", 0};
  }
  if (own.plan != head.plan || own.unit != head.unit)
    return Error{ErrorCode::wrong_recording, all + ": the steps are of another plan; decode its units again", 0};
  return reader;
}

Result<bool> AllStepsReader::open_block() {
  auto block = blocks_.next();
  if (!block) return block.error();
  content_ = std::move(block->content);
  in_ = ByteReader(content_);
  coder_ = {};
  if (block->kind == StepBlock::end) {
    if (in_.number() != count_ || !in_.done())
      return blocks_.damaged(ErrorCode::bad_format, "the end of the file of steps is inconsistent");
    return false;
  }
  if (block->kind != StepBlock::steps) return blocks_.damaged(ErrorCode::bad_format, "unknown part of the file of steps");
  count_ = block->first;
  left_ = in_.count();
  return true;
}

Status AllStepsReader::take(uint64_t count, std::vector<FlowStep>& steps, const std::vector<FunctionId>& functions) {
  for (; count > 0 && in_.ok(); --count, --left_, ++count_) {
    const FlowStep step = coder_.read(in_, in_.number_to(StepCoder::kMostWord), functions);
    if (in_.ok()) steps.push_back(step);
  }
  if (!in_.ok() || (left_ == 0 && !in_.done())) return blocks_.damaged(ErrorCode::bad_format, "the steps are inconsistent");
  return {};
}

Result<bool> AllStepsReader::next(std::vector<FlowStep>& steps, const std::vector<FunctionId>& functions) {
  const Result<bool> more = open_block();
  if (!more || !more.value()) return more;
  if (Status status = take(left_, steps, functions); !status) return status.error();
  return true;
}

Status AllStepsReader::read(uint64_t first, uint64_t count, std::vector<FlowStep>& steps, const std::vector<FunctionId>& functions) {
  while (count != 0) {
    if (first < count_ - taken_.size() || first >= count_ + left_) {
      blocks_.skip_to(first);
      taken_.clear();
      const Result<bool> more = open_block();
      if (!more) return more.error();
      if (!more.value() || first < count_ || first - count_ >= left_)
        return blocks_.damaged(ErrorCode::bad_format, "steps of a group are missing");
    }
    const uint64_t end = first + std::min(count, count_ + left_ - first);
    if (end > count_) {
      if (Status status = take(end - count_, taken_, functions); !status) return status;
    }
    const auto from = taken_.end() - static_cast<std::ptrdiff_t>(count_ - first);
    steps.insert(steps.end(), from, from + static_cast<std::ptrdiff_t>(end - first));
    count -= end - first;
    first = end;
  }
  return {};
}

}  // namespace ptd
