// CallTree: ranges of time, and the end of the flow. See call_tree_state.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "analysis/tree/call_tree_state.h"

namespace ptd {

void CallTree::State::Work::keep(uint64_t part, uint64_t whole) {
  const auto share = [&](uint64_t of) {
    return part >= whole ? of : static_cast<uint64_t>(static_cast<unsigned __int128>(of) * part / whole);
  };
  instructions = share(instructions);
  cycles = share(cycles);
}

// The flow runs evenly from the thread's last step to the next one.
void CallTree::State::take_until(TimeNs end, const FlowStep& next) {
  const auto found = index_of.find(key_of(next.tid, next.cpu));
  if (found == index_of.end() || next.time <= end) return;
  Stack& stack = stacks[found->second];
  CallThread& thread = threads[found->second];
  if (stack.off != Off::running || stack.frames.empty() || end <= thread.last) return;
  const TimeNs from = stack.before_restart != kTimeMax ? stack.before_restart : thread.last;
  Work work(next);
  work.keep(end.value - from.value, next.time.value - from.value);
  FlowStep step = next;
  step.time = end;
  step.instructions = static_cast<uint32_t>(work.instructions);
  step.cycles = work.cycles;
  std::vector<CallStep> none;
  Now now{step, found->second, stack, thread, none};
  spend(now);
}

void CallTree::State::restart(TimeNs time, std::vector<CallStep>& out) {
  for (uint32_t index = 0; index < stacks.size(); ++index) {
    Stack& stack = stacks[index];
    CallThread& thread = threads[index];
    const uint64_t fibre = thread.fibre;
    if (stack.before_restart == kTimeMax && thread.last < time) stack.before_restart = thread.last;
    thread = {thread.pid, thread.tid, thread.cpu, std::max(time, thread.last), std::max(time, thread.last)};
    thread.fibre = fibre;
    if (stack.off != Off::running) stack.off_since = stack.off_floor = std::max(time, stack.off_since);
    stack.given_up.clear();
    drop_ended(stack);
    const std::vector<Frame> frames = std::exchange(stack.frames, {});
    stack.inner.clear();
    stack.open.clear();
    const bool has_counts = std::exchange(stack.has_counts, true);
    FlowStep step;
    step.time = step.floor = time;
    step.cpu = stack.cpu;
    Now now{step, index, stack, thread, out};
    for (const Frame& frame : frames) {
      const uint8_t flags = (frame.flags & ~(kCallInner | kCallEstimated)) | kCallNoStart;
      Frame& again = enter(now, frame.kind, frame.function, frame.return_to, flags, frame.listed);
      again.kernel = frame.kernel;
      again.role = frame.role;
      again.landing = frame.landing;
      if (frame.inlined != kNotInlined) enter_inlined(now, frame.inlined, 0, kCallNoStart);
    }
    stack.saved.renumber([&](size_t depth) { return stack.frames[depth].instructions; });
    if (!has_counts) stack.drop_counts();
  }
}

void CallTree::State::finish(std::vector<CallStep>& out, TimeNs until, const std::function<bool(const CallThread&)>& goes_on) {
  finished = true;
  for (uint32_t index = 0; index < stacks.size(); ++index) {
    Stack& stack = stacks[index];
    CallThread& thread = threads[index];
    FlowStep step;
    step.cpu = stack.cpu;
    step.time = step.floor = thread.last;
    Now now{step, index, stack, thread, out};
    const bool continues = goes_on && goes_on(thread);
    if (until != kTimeMin && (stack.off == Off::running || continues)) step.time = step.floor = std::max(until, thread.last);
    // An untraced call, as a system call is, stops the flow without an interrupt.
    const bool untraced = !stack.frames.empty() && stack.frames.back().untraced();
    const bool ends = stack.off == Off::paused && stack.kernel && !untraced && stack.placed && !continues;
    if (stack.off == Off::running) {
      spend(now);
    } else if (stack.off == Off::lost || thread.last < step.time || (stack.off == Off::paused && stack.off_since < thread.last)) {
      go_on(now);
    } else {
      step.time = step.floor = stack.off_since;
    }
    if (ends) stack.end = {stack.space, stack.resume, step.time};
    stack.restore_counts();
    while (!stack.frames.empty()) leave(now, kCallCut);
    stack.open.clear();
  }
}

}  // namespace ptd
