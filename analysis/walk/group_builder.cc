// GroupBuilder: see group_builder.h. Each rule is that of CallTree (call_tree.cc) for the same kind of step.
#include "analysis/walk/group_builder.h"

#include <algorithm>
#include <utility>

#include "analysis/frame_search.h"

namespace ptd {
namespace {

// A pause with kFlowWindow, the bit of kFlowUnseen, begins a group too: take_inside() takes no pause.
constexpr uint8_t kDoubtful = kFlowUnseen | kFlowUncertain | kFlowHalted | kFlowEstimated;

}  // namespace

void GroupBuilder::take(const FlowStep& step) {
  if (!same_context(step) && !one_group_) {
    flush();
    in_context_ = user_ = false;
  } else if (next_step_ - flushed_at_ >= kMostSteps && !one_group_) {
    flush();
  }
  user_ = user_ || (step.to.value != 0 && !is_kernel_half(step.to));
  if (!in_context_ || (step.flags & kDoubtful) != 0 || !take_inside(step)) {
    flush();
    instructions_ += step.instructions;
    cycles_ += step.cycles;
    items.steps.push_back(step);
    in_context_ = step.kind != FlowKind::switch_in && step.kind != FlowKind::switch_out;
    flushed_at_ = next_step_ + 1;
  }
  context_ = step;
  ++next_step_;
}

bool GroupBuilder::take_inside(const FlowStep& step) {
  if (step.landing == kEntersSetjmp) return false;  // it marks its caller, which may not end in the group
  switch (step.kind) {
    case FlowKind::call:
      if (step.function == kNoFunction) return false;
      enter(step, (step.flags & kFlowFar) != 0 ? FrameKind::syscall : FrameKind::call, middle_of(step));
      return true;
    case FlowKind::interrupt:
      if (step.function == kNoFunction) return false;
      enter(step, FrameKind::interrupt, (step.flags & kFlowBreakpoint) != 0 ? kCallBreakpoint : 0);
      return true;
    case FlowKind::ret:
    case FlowKind::far_return: {
      if (step.landing == kLandsHere) return take_landing(step);
      const bool far = step.kind == FlowKind::far_return;
      const size_t match =
          search_.innermost(frames_, [&](const Frame& frame) { return frame.return_to == step.to && (!far || is_boundary(frame.kind)); });
      if (match == 0 || step.to.value == 0) return false;
      leave_to(match - 1, step);
      return true;
    }
    case FlowKind::jump:
      return take_jump(step);
    default:
      return false;
  }
}

// An exception. The call that it goes on in may be the one around the group: its landing pad is that of a call of the group.
bool GroupBuilder::take_landing(const FlowStep& step) {
  for (size_t i = frames_.size(); i-- > 0;) {
    if (!lands_at(frames_[i].return_to, frames_[i].landing, step.to)) continue;
    leave_to(i, step);
    return true;
  }
  return false;
}

bool GroupBuilder::take_jump(const FlowStep& step) {
  if (step.landing == kLandsHere) return take_landing(step);
  if (step.landing == kInSlot) return false;
  if ((step.flags & kFlowNamed) == 0) {
    absorb(step);
    return true;
  }
  if (step.function == kNoFunction || (frames_.empty() && !one_group_)) return false;
  const bool again = step.from == step.function && (step.flags & kFlowEntry) != 0;
  if (frames_.empty() || (frames_.back().function == step.function && !again)) {
    absorb(step);
    return true;
  }
  if ((step.flags & kFlowEntry) == 0) return false;
  replace(step);
  return true;
}

// Attributes what passed since the last step to the innermost frame.
void GroupBuilder::spend(const FlowStep& step) {
  instructions_ += step.instructions;
  cycles_ += step.cycles;
  if (frames_.empty()) return;
  Frame& frame = frames_.back();
  frame.self_ns += step.time.value - context_.time.value;
  frame.self_instructions += step.instructions;
  frame.self_cycles += step.cycles;
}

void GroupBuilder::enter(const FlowStep& step, FrameKind kind, uint8_t flags) {
  spend(step);
  Frame& frame = push(step);
  frame.kind = kind;
  frame.flags = flags;
}

void GroupBuilder::replace(const FlowStep& step) {
  spend(step);
  const Frame old = frames_.back();
  leave(step);
  Frame& frame = push(step);
  frame.kind = is_boundary(old.kind) ? old.kind : FrameKind::tail;
  frame.by_jump = is_boundary(old.kind);
  frame.flags = old.flags & kCallBreakpoint;
  frame.return_to = old.return_to;
  frame.landing = old.landing;
  frame.entry = old.entry;
  entries_.back().replaces = true;
}

// Adds the frame that a step begins, and its entry.
GroupBuilder::Frame& GroupBuilder::push(const FlowStep& step) {
  Frame& frame = frames_.emplace_back();
  frame.function = step.function;
  frame.return_to = step.return_to;
  frame.landing = step.landing;
  frame.start = step.time;
  frame.floor = step.floor;
  frame.instructions = instructions_;
  frame.cycles = cycles_;
  frame.entry = entries_.size();
  Entry& entry = entries_.emplace_back();
  entry.step = step;
  entry.number = next_step_;
  entry.first_call = pending_.size();
  entry.level = frames_.size();
  return frame;
}

void GroupBuilder::leave(const FlowStep& step) {
  const Frame& frame = frames_.back();
  FinishedCall& call = pending_.emplace_back();
  call.pid = step.pid;
  call.tid = step.tid;
  CallStep& out = call.step;
  out.kind = CallStepKind::leave;
  out.frame = frame.by_jump ? FrameKind::tail : frame.kind;
  out.flags = frame.flags | undated(frame.start);
  out.cpu = step.cpu;
  out.depth = static_cast<uint32_t>(frames_.size() - 1);
  out.function = frame.function;
  out.time = step.time;
  out.floor = step.floor;
  out.start = frame.start;
  out.start_floor = frame.floor;
  out.instructions = instructions_ - frame.instructions;
  out.cycles = cycles_ - frame.cycles;
  out.self_ns = frame.self_ns;
  out.self_instructions = frame.self_instructions;
  out.self_cycles = frame.self_cycles;
  frames_.pop_back();
}

// `first`: the step that goes on with the run, or begins it.
void GroupBuilder::extend(Run& run, const Entry& first) {
  if (run.steps == 0) {
    run.first = first.step.time;
    run.first_step = first.number;
  } else {
    run.outer_ns += first.step.time.value - run.last.value;
  }
  run.outer_instructions += first.step.instructions;
  run.outer_cycles += first.step.cycles;
}

// The step changes no frame.
void GroupBuilder::absorb(const FlowStep& step) {
  Entry first;
  first.step = step;
  first.number = next_step_;
  spend(step);
  Run& run = entries_.back().after;
  extend(run, first);
  run.last = step.time;
  run.steps = next_step_ + 1 - run.first_step;
}

void GroupBuilder::leave_to(size_t depth, const FlowStep& step) {
  spend(step);
  size_t entry = entries_.size();
  while (frames_.size() > depth) {
    entry = frames_.back().entry;
    leave(step);
  }
  Entry& outer = entries_[entry - 1];
  Run& run = outer.after;
  extend(run, entries_[entry]);
  for (size_t i = entry; i < entries_.size(); ++i)
    run.depth = std::max(run.depth, static_cast<uint32_t>(entries_[i].level - outer.level) + entries_[i].after.depth);
  run.last = step.time;
  run.steps = next_step_ + 1 - run.first_step;
  entries_.resize(entry);
}

void GroupBuilder::clear_pending() {
  frames_.clear();
  entries_.resize(1);
  entries_.front() = {};
  pending_.clear();
  flushed_at_ = next_step_;
}

void GroupBuilder::flush() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (i != 0) items.steps.push_back(entries_[i].step);
    if (entries_[i].after.steps == 0) continue;
    const bool last = i + 1 == entries_.size();
    put_group(entries_[i], last ? pending_.size() : entries_[i + 1].first_call - (entries_[i + 1].replaces ? 1 : 0));
  }
  clear_pending();
}

void GroupBuilder::put_group(const Entry& entry, size_t end_call) {
  const Run& run = entry.after;
  CallGroup& group = items.groups.emplace_back();
  group.number = groups_++;
  group.pid = context_.pid;
  group.tid = context_.tid;
  group.cpu = context_.cpu;
  group.space = context_.space;
  group.user = user_;
  group.depth = run.depth;
  group.first = run.first;
  group.last = run.last;
  group.outer_ns = run.outer_ns;
  group.outer_instructions = group.instructions = run.outer_instructions;
  group.outer_cycles = group.cycles = run.outer_cycles;
  group.first_step = run.first_step;
  group.steps = run.steps;
  group.before = items.steps.size();
  group.first_function = items.functions.size();
  // From the last to the first, a call comes before those that it contains.
  steps_.clear();
  for (size_t i = end_call; i > entry.first_call; --i) {
    FinishedCall& call = pending_[i - 1];
    CallStep& step = call.step;
    call.group = group.number;
    step.depth -= static_cast<uint32_t>(entry.level);
    while (!steps_.empty() && steps_.back().depth >= step.depth) {
      --open_[steps_.back().function];
      steps_.pop_back();
    }
    group.instructions += step.self_instructions;
    group.cycles += step.self_cycles;
    if (open_[step.function]++ != 0) {
      step.flags |= kCallInner;
    } else {
      if (step.function >= function_at_.size()) function_at_.resize(std::max<size_t>(step.function + 1, 2 * function_at_.size()));
      size_t& at = function_at_[step.function];
      if (at == 0) {
        items.functions.push_back({step.function, 0, 0, 0});
        at = items.functions.size();
      }
      CallGroup::Function& sums = items.functions[at - 1];
      sums.total_ns += step.total_ns();
      sums.instructions += step.instructions;
      sums.cycles += step.cycles;
    }
    steps_.push_back(step);
    totals_.add(std::span(&step, 1));
  }
  for (const CallStep& step : steps_) --open_[step.function];
  group.function_count = items.functions.size() - group.first_function;
  for (const CallGroup::Function& function : items.functions_of(group)) function_at_[function.id] = 0;
  if (drops_calls_) return;
  calls.insert(calls.end(), pending_.begin() + static_cast<std::ptrdiff_t>(entry.first_call),
               pending_.begin() + static_cast<std::ptrdiff_t>(end_call));
}

}  // namespace ptd
