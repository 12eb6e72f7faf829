// CallTree: call stacks per thread. See call_tree.h.
#include "ptdecode/call_tree.h"

#include <algorithm>
#include <utility>

#include "analysis/call_flow.h"
#include "analysis/frame_search.h"
#include "analysis/thread_schedule.h"
#include "analysis/tree/call_tree_state.h"

namespace ptd {
namespace {

constexpr uint64_t kMostInsnBytes = 15;       // [SDM] 2.3.11
constexpr uint64_t kBreakpointCallBytes = 5;  // a CALL rel32 that INT3 replaces while it is patched

// How the function that a begin enters was entered.
FrameKind entered_by(const FlowStep& step, FrameKind otherwise) {
  return step.landing == kBySyscall ? FrameKind::syscall : step.landing == kByInterrupt ? FrameKind::interrupt : otherwise;
}

}  // namespace

CallTree::CallTree(const ThreadSchedule* schedule) : state_(std::make_unique<State>(schedule)) {}
CallTree::~CallTree() = default;
CallTree::CallTree(CallTree&&) noexcept = default;
CallTree& CallTree::operator=(CallTree&&) noexcept = default;

size_t CallTree::take(const FlowStep& step, std::vector<CallStep>& out) {
  return step.kind != FlowKind::moves ? state_->take(step, out) : state_->take(static_cast<const InlinedRun&>(step), out);
}
bool CallTree::accepts(const CallGroup& group) const { return state_->accepts(group); }
uint32_t CallTree::take(const CallGroup& group) { return state_->take(group); }
bool CallTree::is_open(FunctionId function) const { return state_->stacks[state_->last_thread].open[function] != 0; }
void CallTree::restart(TimeNs time, std::vector<CallStep>& out) { state_->restart(time, out); }
void CallTree::take_until(TimeNs end, const FlowStep& next) { state_->take_until(end, next); }
void CallTree::finish(std::vector<CallStep>& out, TimeNs until, const std::function<bool(const CallThread&)>& goes_on) {
  state_->finish(out, until, goes_on);
}
const std::vector<CallThread>& CallTree::threads() const { return state_->threads; }
std::optional<FlowEnd> CallTree::end_of(uint32_t thread) const { return state_->stacks[thread].end; }
bool CallTree::finished() const { return state_->finished; }
void CallTree::leave_out_enters() { state_->enters = false; }
void CallTree::add_to(FunctionProfile& totals) { state_->totals = &totals; }
void CallTree::follow_inlined(InlineChains& chains) { state_->chains = &chains; }

// A thread that a switch found running: it has run this function since then.
void CallTree::State::begin_unseen(Now& now) {
  if (now.step.from == kNoFunction || now.step.kind == FlowKind::begin) return;
  FlowStep start = now.step;
  start.time = std::min(now.thread.last, start.time);
  start.floor = std::min(start.floor, start.time);
  if (start.return_to.value != 0) start.to = start.return_to;
  Now before{start, now.index, now.stack, now.thread, now.out};
  enter(before, FrameKind::root, start.from, {}, kCallNoStart);
}

// The flow is in the other half of the address space than the innermost call, if the step says where it is. It returned to user code, or
// entered the kernel, in flow that was counted for another thread: around a context switch that is not recorded, as of a virtual machine.
void CallTree::State::change_half(Now& now) {
  std::vector<Frame>& frames = now.stack.frames;
  const FlowStep& step = now.step;
  const bool is_place = step.return_to.value != 0 && step.kind != FlowKind::fibre && step.kind != FlowKind::begin;
  if (!is_place || step.from == kNoFunction || now.stack.off != Off::running || frames.back().untraced() || !now.stack.folded.empty())
    return;
  FlowStep last = step;
  last.time = std::min(now.thread.last, step.time);
  last.floor = std::min(step.floor, last.time);
  last.to = step.return_to;
  Now then{last, now.index, now.stack, now.thread, now.out};
  const bool in_kernel = is_kernel_half(step.return_to);
  if (!in_kernel) {
    while (!frames.empty() && frames.back().kernel) leave(then, kCallCut);
    const auto is_open = [&](const Frame& frame) { return frame.function == step.from; };
    const size_t open = now.stack.search.innermost(frames, is_open);
    while (frames.size() > open) leave(then, kCallCut);
  }
  if (in_kernel || frames.empty()) enter(then, FrameKind::root, step.from, {}, kCallNoStart);
  ++now.thread.forgotten;
}

void CallTree::State::stop(Now& now, Off why) {
  Stack& stack = now.stack;
  if (stack.off == Off::lost && why != Off::switched) go_on(now);  // tracing is known to be off: no more is lost
  if (stack.off != Off::running) return;
  stack.off = why;
  stack.off_since = now.step.time;
  stack.off_floor = now.step.floor;
  CallStep step;
  step.kind = CallStepKind::off;
  step.thread = now.index;
  step.cpu = now.step.cpu;
  step.depth = stack.depth();
  step.time = now.step.time;
  step.floor = now.step.floor;
  now.out.push_back(step);
}

void CallTree::State::go_on(Now& now) {
  Stack& stack = now.stack;
  const Off why = std::exchange(stack.off, Off::running);
  if (!std::exchange(stack.met, true)) return;
  CallStep step;
  step.kind = CallStepKind::on;
  step.thread = now.index;
  step.cpu = now.step.cpu;
  step.depth = stack.depth();
  step.time = std::max(now.step.time, stack.off_since);
  step.floor = now.step.floor;
  step.start = stack.off_since;
  step.start_floor = stack.off_floor;
  const bool whole = why == Off::switched || why == Off::halted;
  const uint64_t passed = step.total_ns();
  const int32_t tid = now.step.tid > 0 ? now.step.tid : now.thread.tid;  // a fibre may have come from another thread
  step.off_cpu_ns = whole ? passed : schedule == nullptr ? 0 : schedule->off_ns(tid, step.start, step.time);
  (why == Off::lost ? step.lost_ns : step.untraced_ns) = passed - step.off_cpu_ns;
  if (why == Off::paused && stack.kernel) step.flags |= kCallKernel;
  if (why == Off::lost) step.flags |= estimated(now.step);
  now.thread.off_cpu_ns += step.off_cpu_ns;
  now.thread.untraced_ns += step.untraced_ns;
  now.thread.lost_ns += step.lost_ns;
  now.out.push_back(step);
}

void CallTree::State::leave_to(Now& now, size_t depth) {
  while (now.stack.frames.size() > depth) leave(now, 0);
}

void CallTree::State::drop_ended(Stack& stack) {
  stack.saved.drop_ended(
      [&](size_t depth, uint64_t number) { return depth < stack.frames.size() && stack.frames[depth].instructions == number; });
}

// setjmp is the innermost frame.
void CallTree::State::save_place(Now& now) {
  const std::vector<Frame>& frames = now.stack.frames;
  const size_t caller = frames.size() - 2;
  if (frames.size() >= 2) save_place(now.stack, caller, frames.back().return_to);
}

void CallTree::State::save_place(Stack& stack, size_t caller, Ip place) {
  if (place.value == 0) return;
  drop_ended(stack);
  stack.saved.save(caller, stack.frames[caller].instructions, place);
}

// Returns how many frames are left where an exception goes on; 0 if none of the open calls has this landing pad.
size_t CallTree::State::frame_of_landing(const Now& now) {
  const auto lands = [&](const Frame& frame) { return lands_at(frame.return_to, frame.landing, now.step.to); };
  const size_t match = now.stack.landing_search.innermost(now.stack.frames, lands, kMostGroupSteps);
  return match == 0 ? 0 : match - 1;
}

// Returns the index + 1 of the frame in which the flow goes on inside of the step's function, as after longjmp; 0 if that is not open.
size_t CallTree::State::frame_of_jump(Now& now) {
  Stack& stack = now.stack;
  const std::vector<Frame>& frames = stack.frames;
  const FlowStep& step = now.step;
  const auto is_open = [&](const Frame& frame) { return frame.function == step.function; };
  const uint32_t open = stack.open[step.function];  // also inlined calls
  const size_t inner = open == 0 ? 0 : stack.search.innermost(frames, is_open);
  const bool jumps = (step.kind == FlowKind::jump || step.kind == FlowKind::ret) && !is_kernel_half(step.to);
  if (inner == 0 || !jumps) return inner;
  drop_ended(stack);
  SavedPlaces::Found found;
  const bool known = stack.saved.take(
      step.to, frames.size() - 1, [&](size_t depth) { return is_open(frames[depth]); }, found);
  const bool several = known ? found.several : open > 1 && stack.search.look(std::span(frames).first(inner - 1), is_open) != 0;
  if (several) ++now.thread.guessed;
  return known ? found.depth + 1 : inner;
}

// Flow is inside of a function whose start was not seen.
void CallTree::State::root(Now& now) {
  const bool entry = (now.step.flags & kFlowEntry) != 0 && now.step.kind == FlowKind::begin;
  enter(now, entry ? entered_by(now.step, FrameKind::call) : FrameKind::root, now.step.function, {}, entry ? 0 : kCallNoStart);
}

// The function is over, another goes on in its place. A handler's successor ends as the handler would have, and still is that of an INT3.
void CallTree::State::replace(Now& now, uint8_t flags) {
  const Frame frame = now.stack.frames.back();
  leave(now, 0);
  const bool boundary = is_boundary(frame.kind);
  const auto kept = static_cast<uint8_t>(frame.flags & kCallBreakpoint);
  Frame& next = enter(now, boundary ? frame.kind : FrameKind::tail, now.step.function, frame.return_to, flags | kept, FrameKind::tail);
  next.role = frame.role;
  next.landing = frame.landing;
  next.began = frame.began != kNoFunction ? frame.began : frame.function;
}

void CallTree::State::take_return(Now& now) {
  std::vector<Frame>& frames = now.stack.frames;
  const FlowStep& step = now.step;
  if (frames.empty()) return root(now);
  if (const size_t depth = step.landing == kLandsHere ? frame_of_landing(now) : 0; depth != 0) return leave_to(now, depth);
  const auto awaits = [&](const Frame& frame) { return frame.return_to == step.to && step.to.value != 0; };
  if (const size_t match = now.stack.search.innermost(frames, awaits); match != 0) return leave_to(now, match - 1);
  if ((step.flags & kFlowUnseen) != 0) return frames.size() > 1 ? leave(now, 0) : void();
  const Frame& top = frames.back();
  if (top.role == Role::handler) {
    replace(now, 0);
    frames.back().role = Role::restorer;
    return;
  }
  const bool in_retpoline = (step.flags & kFlowEntry) != 0 && (top.flags & kCallMiddle) != 0;  // of the function itself
  if (is_boundary(top.kind) || (top.function == step.function && !in_retpoline)) return;       // a computed jump
  const bool began_unseen = frames.size() == 1 && (top.flags & kCallNoStart) != 0;             // then the call may be older than the flow
  // As a retpoline's RET.
  if ((step.flags & kFlowEntry) != 0 && !(began_unseen && (step.flags & kFlowAfterCall) != 0)) return replace(now, 0);
  // No CALL has pushed this address: the function that jumped here did, or a retpoline's RET jumps back into it.
  if (top.began == step.function && top.began != kNoFunction && (step.flags & kFlowAfterCall) == 0) return replace(now, kCallMiddle);
  const size_t open = (step.flags & kFlowNamed) != 0 ? frame_of_jump(now) : 0;
  if (open != 0) return leave_to(now, open);
  if (take_up(now)) return;
  if (frames.size() > 1) {
    give_up(now, CallLoss::strange_return);
  } else {
    leave(now, 0);
    // No call led from there: it may be no caller.
    if ((step.flags & kFlowAfterCall) == 0 && totals == nullptr) now.out.back().loss = CallLoss::strange_return;
  }
  root(now);
}

void CallTree::State::take_user_far_return(Now& now) {
  const auto awaits = [&](const Frame& frame) { return frame.return_to == now.step.to; };
  const size_t match = now.stack.search.innermost(now.stack.frames, awaits);
  match != 0 ? leave_to(now, match - 1) : take_jump(now);
}

void CallTree::State::take_far_return(Now& now) {
  std::vector<Frame>& frames = now.stack.frames;
  const FlowStep& step = now.step;
  const bool seen = (step.flags & kFlowUnseen) == 0;
  BoundedSearch& search = now.stack.search;
  size_t match =
      search.innermost(frames, [&](const Frame& frame) { return is_boundary(frame.kind) && frame.return_to == step.to && seen; });
  const bool exact = match != 0;
  if (!exact && stays_in_user_code(step.return_to, step.to)) return seen ? take_user_far_return(now) : void();
  // IRET to the next instruction is how a kernel serialises ("iret_to_self").
  if (!exact && seen && !frames.empty() && !is_boundary(frames.back().kind) && frames.back().function == step.function) return;
  const bool to_user = seen && !is_kernel_half(step.to);
  if (!exact && to_user)
    match = search.innermost(frames, [](const Frame& frame) { return is_boundary(frame.kind) && !is_kernel_half(frame.return_to); });
  const bool from_user = match != 0;  // what ends was entered from user code
  if (match == 0) match = search.innermost(frames, [](const Frame& frame) { return is_boundary(frame.kind); });
  if (match == 0) {
    leave_to(now, 0);
    if (seen) root(now);
    return;
  }
  const Frame ended = frames[match - 1];
  leave_to(now, match - 1);
  if (exact || !seen) return;
  if (frames.empty()) return root(now);
  if (to_user && from_user) return arrive(now, {ended.return_to, ended.kind == FrameKind::syscall, true, ended.landing});
  if (frames.back().function == step.function) return;
  const bool entry = (step.flags & kFlowEntry) != 0 && step.landing != kInSlot;
  if ((ended.flags & kCallBreakpoint) != 0 && entry) {  // the handler emulated the CALL that the INT3 replaces
    enter(now, FrameKind::call, step.function, ended.return_to + kBreakpointCallBytes, 0);
  } else {
    take_jump(now);
  }
}

void CallTree::State::take_jump(Now& now) {
  std::vector<Frame>& frames = now.stack.frames;
  const FlowStep& step = now.step;
  if (frames.empty()) return root(now);
  if (const size_t depth = step.landing == kLandsHere ? frame_of_landing(now) : 0; depth != 0) return leave_to(now, depth);
  if (step.landing == kInSlot && frames.back().function != step.function)  // it jumps back into the function, which goes on
    return void(enter(now, FrameKind::call, step.function, {}, 0));
  const bool again = step.kind == FlowKind::jump && step.from == step.function && (step.flags & kFlowEntry) != 0;
  if ((frames.back().function == step.function && !again) || (step.flags & kFlowNamed) == 0) return;
  if ((step.flags & kFlowEntry) != 0) {
    replace(now, 0);
    return step.landing == kEntersSetjmp ? save_place(now) : void();
  }
  // Back from code that it jumped to.
  if (frames.back().began == step.function && frames.back().began != kNoFunction) return replace(now, kCallMiddle);
  const size_t open = frame_of_jump(now);
  if (open != 0) return leave_to(now, open);
  replace(now, kCallMiddle);
}

void CallTree::State::take_begin(Now& now) {
  std::vector<Frame>& frames = now.stack.frames;
  Return back{std::exchange(now.stack.resume, Ip{}), false, now.stack.kernel && !is_kernel_half(now.step.to), now.stack.resume_landing};
  if (frames.empty()) return root(now);
  if ((now.step.flags & kFlowHalted) != 0) return;
  if (frames.back().untraced() && is_boundary(frames.back().kind)) {
    back.syscall = frames.back().kind == FrameKind::syscall;
    leave(now, 0);
    if (frames.empty()) return root(now);
  }
  arrive(now, back);
}

// The flow goes on in user code: where it was interrupted, in the handler of a signal, or where such a handler returns to.
void CallTree::State::arrive(Now& now, Return back) {
  std::vector<Frame>& frames = now.stack.frames;
  const FlowStep& step = now.step;
  if (step.to == back.due) return;
  const bool sigreturn = back.syscall && frames.back().role == Role::restorer;
  if (sigreturn) {
    const Frame restorer = frames.back();
    // QEMU runs sigreturn again if a signal came meanwhile (linux-user/signal.c, "block_signals").
    if (is_restart(step.to, back.due) && step.to != restorer.return_to) return;
    leave(now, 0);
    if (frames.empty()) return root(now);
    back = {restorer.return_to, true, true};
    if (step.to == back.due || back.due.value == 0) return;
  }
  BoundedSearch& search = now.stack.search;
  if (const size_t match = search.innermost(frames, [&](const Frame& frame) { return frame.return_to == step.to; }); match != 0)
    return leave_to(now, match - 1);
  if (back.syscall && is_restart(step.to, back.due)) return;
  if ((step.flags & kFlowEntry) != 0) return enter_handler(now, step.function, back);
  const bool named = (step.flags & kFlowNamed) != 0;
  const bool is_open = named && now.stack.open[step.function] != 0;
  const size_t open = is_open ? search.innermost(frames, [&](const Frame& frame) { return frame.function == step.function; }) : 0;
  if (open != 0) return leave_to(now, open);
  const auto near = [&](const Frame& frame) {
    return frame.role != Role::plain && (is_restart(step.to, frame.return_to) || step.to - frame.return_to <= kMostInsnBytes);
  };
  if (const size_t match = search.innermost(frames, near); match != 0) return leave_to(now, match - 1);
  if (sigreturn && (named || step.to - back.due <= kMostInsnBytes)) return take_jump(now);  // the handler changed where it returns to
  if (back.kernel && !named) return enter_handler(now, step.from != kNoFunction ? step.from : step.function, back);
  give_up(now, CallLoss::strange_resume);
  if (fibres != nullptr && lose_fibre(now, std::nullopt)) return;
  root(now);
}

void CallTree::State::enter_handler(Now& now, FunctionId function, const Return& back) {
  Frame& handler = enter(now, entered_by(now.step, FrameKind::interrupt), function, back.due, 0);
  handler.role = back.kernel ? Role::handler : Role::plain;
  handler.landing = back.landing;
}

// Traced code runs: untraced code, which is innermost, does not any more, whatever the steps before were.
void CallTree::State::end_untraced(Now& now) {
  std::vector<Frame>& frames = now.stack.frames;
  if (frames.back().function == now.step.function && now.step.function != kNoFunction) {  // traced in part
    frames.back().flags &= static_cast<uint8_t>(~kCallUntraced);
    return;
  }
  while (!frames.empty() && frames.back().untraced()) leave(now, 0);
  if (frames.empty()) return root(now);
  take_jump(now);
}

// Takes a call of traced code, and a return from the innermost call: most steps are one of these. False: it is another step.
inline bool CallTree::State::take_plain(Now& now) {
  const FlowStep& step = now.step;
  Stack& stack = now.stack;
  if (stack.off != Off::running || (step.flags & (kFlowFar | kFlowUnseen | kFlowUncertain)) != 0 || step.landing <= kEntersSetjmp ||
      stack.frames.size() >= kMaxFrames)
    return false;
  if (stack.space != step.space && !is_kernel_half(step.to)) return false;
  if (step.kind == FlowKind::call) {
    if (step.function == kNoFunction) return false;
    enter(now, FrameKind::call, step.function, step.return_to, middle_of(step)).landing = step.landing;
    return true;
  }
  // What it returns to is not untraced code, or take_other() would end that.
  const size_t depth = stack.frames.size();
  if (step.kind != FlowKind::ret || depth < 2 || stack.frames[depth - 2].untraced()) return false;
  if (stack.frames[depth - 1].return_to != step.to || step.to.value == 0) return false;
  leave(now, 0);
  return true;
}

size_t CallTree::State::take(const FlowStep& step, std::vector<CallStep>& out) {
  left_out = 0;
  const uint32_t index = thread_of(step);
  Now now{step, index, stacks[index], threads[index], out};
  if (now.thread.pid < 0) [[unlikely]]
    now.thread.pid = step.pid;
  if (std::exchange(now.stack.windows, windows) != windows && now.stack.off != Off::running) [[unlikely]]
    forget_calls(now);
  now.stack.cpu = step.cpu;
  if (!now.stack.frames.empty() && now.stack.frames.back().kernel != is_kernel_half(step.return_to)) [[unlikely]]
    change_half(now);
  spend(now);
  if (step.kind != FlowKind::inlined && !take_plain(now)) take_other(now);
  if (step.inlined != kUnknownInlining && chains != nullptr) follow_inlined(now);
  return left_out;
}

// The steps of a group are taken like this only where nothing but the frame around them matters to them, and they to nothing else.
bool CallTree::State::accepts(const CallGroup& group) const {
  const auto found = index_of.find(key_of(group.tid, group.cpu));
  if (found == index_of.end()) return false;
  const Stack& stack = stacks[found->second];
  const CallThread& thread = threads[found->second];
  if (stack.off != Off::running || stack.frames.empty() || stack.frames.back().untraced()) return false;
  if (group.user && stack.space != group.space) return false;
  return thread.pid == group.pid && thread.last <= group.first && stack.frames.size() + group.depth < kMaxFrames;
}

uint32_t CallTree::State::take(const CallGroup& group) {
  FlowStep step;
  step.tid = group.tid;
  step.cpu = group.cpu;
  const uint32_t index = thread_of(step);
  CallThread& thread = threads[index];
  Frame& outer = stacks[index].frames.back();
  outer.self_ns += group.first.value - thread.last.value + group.outer_ns;
  outer.self_instructions += group.outer_instructions;
  outer.self_cycles += group.outer_cycles;
  thread.running_ns += group.last.value - thread.last.value;
  thread.last = group.last;
  thread.instructions += group.instructions;
  thread.cycles += group.cycles;
  return static_cast<uint32_t>(stacks[index].frames.size());
}

void CallTree::State::take_other(Now& now) {
  const FlowStep& step = now.step;
  if (step.kind == FlowKind::fibre) return take_fibre(now);
  if (step.kind == FlowKind::switch_out) return stop(now, Off::switched);
  if (step.kind == FlowKind::switch_in) {
    if (now.stack.off == Off::switched) go_on(now);
    return;
  }
  if (step.kind == FlowKind::pause) {
    if ((step.flags & kFlowWindow) != 0) return take_window(now);
    now.stack.resume = step.return_to;
    now.stack.resume_landing = step.landing;
    now.stack.kernel = (step.flags & kFlowFar) != 0;
    now.stack.placed = (step.flags & kFlowPlaced) != 0;
    return stop(now, (step.flags & kFlowHalted) != 0 ? Off::halted : Off::paused);
  }
  if (step.kind == FlowKind::gap) {
    const bool lost = now.stack.off == Off::lost && now.stack.met;
    if (!lost && now.stack.off != Off::running) go_on(now);
    give_up(now, CallLoss::gap);
    if (fibres != nullptr && lose_fibre(now, Off::lost)) return;
    return lost ? void() : stop(now, Off::lost);
  }
  if (now.stack.off != Off::running) go_on(now);
  if (now.stack.space != step.space && step.to.value != 0 && !is_kernel_half(step.to)) {
    const SpaceId before = std::exchange(now.stack.space, step.space);
    if (before != kNoSpace && !now.stack.frames.empty()) give_up(now, CallLoss::new_program);
    if (before != kNoSpace && fibres != nullptr && end_fibres(now)) return;
  }
  if (now.stack.frames.size() >= kMaxFrames && take_folded(now)) [[unlikely]]
    return;
  dispatch(now);
  const std::vector<Frame>& frames = now.stack.frames;
  if (!frames.empty() && frames.back().untraced() && (step.flags & kFlowUnseen) == 0) end_untraced(now);
}

// The stored calls, as FoldedCalls needs them.
struct CallTree::State::StoredCalls {
  State& state;
  Stack& stack;
  CallThread& thread;
  bool awaits(Ip to) {
    return to.value != 0 && stack.search.innermost(stack.frames, [&](const Frame& frame) { return frame.return_to == to; }) != 0;
  }
  bool saved(Ip place, FunctionId function) {
    state.drop_ended(stack);
    return stack.saved.has(place, [&](size_t depth) { return stack.frames[depth].function == function; });
  }
  [[nodiscard]] bool is_open(FunctionId function) const { return stack.open[function] != 0; }
  bool runs(FunctionId function) {
    if (stack.frames.back().function == function && stack.open[function] > 1) guess();  // frame_of_jump() counts other guesses
    return is_open(function) && stack.search.innermost(stack.frames, [&](const Frame& frame) { return frame.function == function; }) != 0;
  }
  void guess() { ++thread.guessed; }
};

// The stack is as deep as it may get: calls further in are part of its last one. Returns false for a step that is of the frames.
bool CallTree::State::take_folded(Now& now) {
  Stack& stack = now.stack;
  const bool begins = now.step.kind == FlowKind::begin;
  while ((now.step.flags & kFlowUnseen) == 0 && !begins && !stack.frames.empty() && stack.frames.back().untraced()) leave(now, 0);
  if (stack.frames.size() < kMaxFrames) return false;
  const Frame& top = stack.frames.back();
  if (begins && stack.folded.empty() && (top.untraced() || top.role == Role::restorer)) return false;
  if (now.step.landing == kLandsHere && !stack.folded.empty()) {
    if (stack.folded.leave_to_landing(now.step.to)) return true;
    if (frame_of_landing(now) != 0) stack.folded.clear();
  }
  StoredCalls stored{*this, stack, now.thread};
  const FoldedCalls::Where where = stack.folded.take(now.step, stack.resume, stored);
  if (where == FoldedCalls::Where::outside) return false;
  if (now.step.landing == kEntersSetjmp) save_place(stack, stack.frames.size() - 1, stack.folded.only_return());
  if (begins) stack.resume = {};
  if (where == FoldedCalls::Where::begun) ++now.thread.folded;
  if (where != FoldedCalls::Where::unknown) return true;
  give_up(now, CallLoss::strange_return);
  root(now);
  return true;
}

void CallTree::State::dispatch(Now& now) {
  const FlowStep& step = now.step;
  switch (step.kind) {
    case FlowKind::call: {
      if ((step.flags & kFlowUncertain) != 0) ++now.thread.uncertain;
      const bool far = (step.flags & kFlowFar) != 0, unseen = (step.flags & kFlowUnseen) != 0;
      Frame& frame =
          enter(now, far ? FrameKind::syscall : FrameKind::call, step.function, step.return_to, unseen ? kCallUntraced : middle_of(step));
      frame.landing = std::max(step.landing, kEntersSetjmp);
      return step.landing == kEntersSetjmp ? save_place(now) : void();
    }
    case FlowKind::interrupt:
      enter(now, FrameKind::interrupt, step.function, step.return_to, (step.flags & kFlowBreakpoint) != 0 ? kCallBreakpoint : 0).landing =
          step.landing;
      return;
    case FlowKind::ret:
      return take_return(now);
    case FlowKind::far_return:
      return take_far_return(now);
    case FlowKind::jump:
      return take_jump(now);
    default:
      return take_begin(now);
  }
}

}  // namespace ptd
