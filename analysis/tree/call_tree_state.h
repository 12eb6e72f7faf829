// CallTree::State: the open calls of each thread, and how a step changes them. Private to CallTree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/base/open_counts.h"
#include "analysis/call_flow.h"
#include "analysis/thread_schedule.h"
#include "analysis/tree/fibre_stacks.h"
#include "analysis/tree/folded_calls.h"
#include "image/left_calls.h"
#include "ptdecode/call_tree.h"
#include "ptdecode/function_profile.h"

namespace ptd {

/// See CallTree. Not thread-safe.
struct CallTree::State {
  explicit State(const ThreadSchedule* thread_schedule) : schedule(thread_schedule) {}
  size_t take(const FlowStep& step, std::vector<CallStep>& out);
  size_t take(const InlinedRun& moves, std::vector<CallStep>& out);
  [[nodiscard]] bool accepts(const CallGroup& group) const;
  uint32_t take(const CallGroup& group);
  void restart(TimeNs time, std::vector<CallStep>& out);
  void take_until(TimeNs end, const FlowStep& next);
  void finish(std::vector<CallStep>& out, TimeNs until, const std::function<bool(const CallThread&)>& goes_on);

  enum class Role : uint8_t {
    plain,
    handler,   ///< of a signal: entered from the kernel at another place than was interrupted
    restorer,  ///< what a handler returns to: it calls sigreturn
  };
  struct Now;
  /// Of a call, or of an inlined function. Constructed in place: the compiler clears a temporary with "rep stos", which takes longer than
  /// the rest.
  struct Open {
    Open(const Now& now, FunctionId entered, uint8_t call_flags);
    FunctionId function;
    uint8_t flags;
    TimeNs start, floor;
    uint64_t off_cpu_ns, untraced_ns, lost_ns, instructions, cycles;  ///< the thread's totals when it began
    uint64_t self_ns = 0, self_instructions = 0, self_cycles = 0;
    [[nodiscard]] bool untraced() const { return function == kNoFunction || (flags & kCallUntraced) != 0; }
  };
  struct Frame : Open {
    using Open::Open;
    FrameKind kind = FrameKind::call;
    bool kernel = false;  ///< its code is in the kernel half of the address space
    /// The kind that steps have: tail for what an interrupt's handler went on in, root if its start is not known.
    FrameKind listed = FrameKind::call;
    Role role = Role::plain;
    InlineId inlined = kNotInlined;  ///< Stack::inner has each function of this chain
    int32_t landing = 0;             ///< FlowStep::landing of the call
    FunctionId began = kNoFunction;  ///< after tail calls: the function with which the first of them began
    Ip return_to;
  };
  /// Where the kernel returns to user code.
  struct Return {
    Ip due;                ///< the address that was interrupted
    bool syscall = false;  ///< by a system call
    bool kernel = false;   ///< the kernel was entered; else an address filter may have stopped the trace
    int32_t landing = 0;   ///< FlowStep::landing of the interrupt
  };
  enum class Off : uint8_t { running, switched, paused, halted, lost };
  struct Stack {
    std::vector<Frame> frames, given_up;
    std::vector<Open> inner;               ///< inlined functions of `frames`, from the outermost frame on
    FoldedCalls folded;                    ///< inside of the last frame, which accounts for them
    SavedPlaces saved;                     ///< number of a call: Frame::instructions
    BoundedSearch search, landing_search;  ///< of frames; for landing pads
    Off off = Off::lost;                   ///< nothing is known before the first step
    int32_t cpu = -1;                      ///< of the last step
    bool met = false;
    bool begun = false;   ///< a program was executed
    bool gapped = false;  ///< flow was lost
    bool kernel = false;  ///< paused by a system call or an interrupt of user code
    bool placed = false;  ///< kFlowPlaced of the pause
    TimeNs off_since, off_floor;
    TimeNs before_restart = kTimeMax;  ///< the time of the last step, if restart() came after it; kTimeMax: it did not
    SpaceId space = kNoSpace;
    Ip resume;
    int32_t resume_landing = 0;  ///< FlowStep::landing of the pause
    std::optional<FlowEnd> end;  ///< see CallTree::end_of()
    uint64_t windows = 0;        ///< State::windows at the last step
    OpenCounts open;
    bool has_counts = true;  ///< false: `open` is empty, and the calls that are open count when it is needed
    void drop_counts() {
      open.clear();
      has_counts = false;
    }
    void restore_counts() {
      if (std::exchange(has_counts, true)) return;
      for (const Frame& frame : frames) ++open[frame.function];
      for (const Open& call : inner) ++open[call.function];
    }
    [[nodiscard]] uint32_t depth() const { return static_cast<uint32_t>(frames.size() + inner.size()); }
  };
  /// One step being taken.
  struct Now {
    const FlowStep& step;
    uint32_t index;
    Stack& stack;
    CallThread& thread;
    std::vector<CallStep>& out;
  };
  CallStep new_step;  ///< copied where one is added: see Open
  /// The idle task and unknown threads are one for each cpu.
  static constexpr std::pair<int32_t, int32_t> key_of(int32_t tid, int32_t cpu) { return {tid, tid > 0 ? -1 : cpu}; }
  uint32_t thread_of(const FlowStep& step) {
    if (step.tid != last_tid || step.cpu != last_cpu || threads.empty()) find_thread(step);
    return last_thread;
  }
  /// Returns kCallEstimated if the step's time is an estimate.
  [[nodiscard]] static uint8_t estimated(const FlowStep& step) { return (step.flags & kFlowEstimated) != 0 ? kCallEstimated : 0; }
  void find_thread(const FlowStep& step);
  /// Instructions and cycles of a step.
  struct Work {
    uint64_t instructions, cycles;
    explicit Work(const FlowStep& step) : instructions(step.instructions), cycles(step.cycles) {}
    /// Keeps the last `part` of `whole` ns.
    void keep(uint64_t part, uint64_t whole);
  };
  void spend(Now& now);
  void begin_unseen(Now& now);
  void change_half(Now& now);
  void stop(Now& now, Off why);
  void go_on(Now& now);
  Frame& enter(Now& now, FrameKind kind, FunctionId function, Ip return_to, uint8_t flags, std::optional<FrameKind> listed = {});
  void leave(Now& now, uint8_t flags);
  CallStep& put(Now& now, const Open& call, CallStepKind kind, FrameKind frame, uint8_t flags) const;
  void put_enter(Now& now, const Open& call, FrameKind kind);
  void put_leave(Now& now, const Open& call, FrameKind kind, uint8_t flags);
  void put_step(Now& now, const Open& call, FrameKind kind, const EndedCall& ended) const;
  void follow_inlined(Now& now);
  void enter_inlined(Now& now, InlineId wanted, uint32_t begins, uint8_t flags);
  void enter_one(Now& now, InlineId wanted, uint8_t flags);
  void leave_inlined(Now& now, InlineId kept, uint8_t flags);
  void leave_to(Now& now, size_t depth);
  void save_place(Now& now);
  void save_place(Stack& stack, size_t caller, Ip place);
  void drop_ended(Stack& stack);
  size_t frame_of_landing(const Now& now);
  size_t frame_of_jump(Now& now);
  void give_up(Now& now, CallLoss why);
  void forget_calls(Now& now);
  void take_window(Now& now);
  bool take_up(Now& now);
  void take_return(Now& now);
  void take_far_return(Now& now);
  void take_user_far_return(Now& now);
  void take_jump(Now& now);
  void take_begin(Now& now);
  void arrive(Now& now, Return back);
  void enter_handler(Now& now, FunctionId function, const Return& back);
  void end_untraced(Now& now);
  bool take_plain(Now& now);
  void take_other(Now& now);
  void dispatch(Now& now);
  struct StoredCalls;
  bool take_folded(Now& now);
  void root(Now& now);
  uint32_t add_stack(const FlowStep& step, uint64_t fibre);
  void have_room();
  [[nodiscard]] uint32_t own_stack(const FlowStep& step) const;
  void suspend(Now& now, uint32_t own);
  void abandon(Now& now);
  void set_lost(uint32_t own, GapReason reason);
  void first_announcement(Now& now, uint32_t own);
  void resume(const FlowStep& step, uint32_t own, uint32_t index, std::vector<CallStep>& out);
  uint32_t unknown_stack(const FlowStep& step, uint32_t own);
  void claim(const FlowStep& step, uint32_t index, std::vector<CallStep>& out);
  void take_fibre(const Now& now);
  bool lose_fibre(Now& now, std::optional<Off> off);
  bool end_fibres(Now& now);
  void replace(Now& now, uint8_t flags);

  std::map<std::pair<int32_t, int32_t>, uint32_t> index_of;  ///< by tid; of the idle task and unknown threads by tid and cpu
  int32_t last_tid = 0, last_cpu = 0;                        ///< of the step before
  uint32_t last_thread = 0;                                  ///< its index
  uint64_t windows = 0;                                      ///< how often a cpu's trace began again in another window
  bool finished = false;
  bool enters = true;                 ///< steps of kind enter are output
  FunctionProfile* totals = nullptr;  ///< gets what ends, in place of steps of kind leave
  size_t left_out = 0;                ///< steps that take() left out
  std::vector<CallThread> threads;
  std::vector<Stack> stacks;
  const ThreadSchedule* schedule = nullptr;
  InlineChains* chains = nullptr;       ///< null: inlined functions are not followed
  std::unique_ptr<FibreStacks> fibres;  ///< null: none was announced
};

inline CallTree::State::Open::Open(const Now& now, FunctionId entered, uint8_t call_flags)
    : function(entered),
      flags(call_flags | estimated(now.step) | (now.stack.open[entered]++ != 0 ? kCallInner : 0)),
      start(now.step.time),
      floor(now.step.floor),
      off_cpu_ns(now.thread.off_cpu_ns),
      untraced_ns(now.thread.untraced_ns),
      lost_ns(now.thread.lost_ns),
      instructions(now.thread.instructions),
      cycles(now.thread.cycles) {}

// Adds a step of a call, the innermost one.
inline CallStep& CallTree::State::put(Now& now, const Open& call, CallStepKind kind, FrameKind frame, uint8_t flags) const {
  now.out.push_back(new_step);
  CallStep& step = now.out.back();
  step.kind = kind;
  step.frame = frame;
  step.flags = flags;
  step.thread = now.index;
  step.cpu = now.step.cpu;
  step.depth = now.stack.depth() - 1;
  step.function = call.function;
  step.start = call.start;
  step.start_floor = call.floor;
  return step;
}

// Outputs that a call, the innermost one, was entered.
inline void CallTree::State::put_enter(Now& now, const Open& call, FrameKind kind) {
  if (!enters) return void(++left_out);
  CallStep& step = put(now, call, CallStepKind::enter, kind, call.flags);
  step.time = call.start;
  step.floor = call.floor;
}

// Outputs that a call, the innermost one, is left.
inline void CallTree::State::put_step(Now& now, const Open& call, FrameKind kind, const EndedCall& ended) const {
  CallStep& step = put(now, call, CallStepKind::leave, kind, ended.flags);
  step.time = TimeNs{call.start.value + ended.total_ns};
  step.floor = now.step.floor;
  step.off_cpu_ns = ended.off_cpu_ns;
  step.untraced_ns = ended.untraced_ns;
  step.lost_ns = ended.lost_ns;
  step.self_ns = ended.self_ns;
  step.instructions = ended.instructions;
  step.self_instructions = ended.self_instructions;
  step.cycles = ended.cycles;
  step.self_cycles = ended.self_cycles;
}

// Outputs or counts that a call, the innermost one, is left.
[[gnu::always_inline]] inline void CallTree::State::put_leave(Now& now, const Open& call, FrameKind kind, uint8_t flags) {
  const CallThread& thread = now.thread;
  const TimeNs end = std::max(now.step.time, call.start);
  const EndedCall ended{.flags = static_cast<uint8_t>(call.flags | flags | estimated(now.step) | undated(call.start)),
                        .total_ns = end.value - call.start.value,
                        .off_cpu_ns = thread.off_cpu_ns - call.off_cpu_ns,
                        .untraced_ns = thread.untraced_ns - call.untraced_ns,
                        .lost_ns = thread.lost_ns - call.lost_ns,
                        .self_ns = call.self_ns,
                        .instructions = thread.instructions - call.instructions,
                        .self_instructions = call.self_instructions,
                        .cycles = thread.cycles - call.cycles,
                        .self_cycles = call.self_cycles};
  --now.stack.open[call.function];
  if (totals != nullptr) {
    ++left_out;
    return totals->add(call.function, ended);
  }
  put_step(now, call, kind, ended);
}

// Attributes what passed since the thread's last step to the innermost call. Untraced code runs no instructions that are seen
// (end_untraced()), and its time is not running time.
inline void CallTree::State::spend(Now& now) {
  CallThread& thread = now.thread;
  const FlowStep& step = now.step;
  if (now.stack.frames.empty() && step.instructions != 0) [[unlikely]]
    begin_unseen(now);
  const uint64_t passed = step.time > thread.last ? step.time.value - thread.last.value : 0;
  const uint64_t ran = now.stack.off == Off::running ? passed : 0;  // go_on() accounts for other time
  Work work(step);
  if (now.stack.before_restart != kTimeMax) [[unlikely]]
    work.keep(passed, step.time.value - std::exchange(now.stack.before_restart, kTimeMax).value);
  thread.instructions += work.instructions;
  thread.cycles += work.cycles;
  thread.last.value += passed;
  if (now.stack.frames.empty()) [[unlikely]] {
    thread.running_ns += ran;
    return;
  }
  Frame& outer = now.stack.frames.back();
  Open& frame = outer.inlined == kNotInlined ? outer : now.stack.inner.back();
  frame.self_instructions += work.instructions;
  frame.self_cycles += work.cycles;
  const bool traced = !frame.untraced();
  (traced ? thread.running_ns : thread.untraced_ns) += ran;
  frame.self_ns += traced ? ran : 0;
}

// Leaves the inlined functions of the innermost frame that are not in `kept`.
inline void CallTree::State::leave_inlined(Now& now, InlineId kept, uint8_t flags) {
  Stack& stack = now.stack;
  for (InlineId& open = stack.frames.back().inlined; open != kept; open = (*chains)[open].outer) {
    put_leave(now, stack.inner.back(), FrameKind::inlined, flags);
    stack.inner.pop_back();
  }
}

// The flow is where the functions of the step's chain are inlined in its function.
inline void CallTree::State::follow_inlined(Now& now) {
  Stack& stack = now.stack;
  if (stack.frames.empty() || !stack.folded.empty()) return;
  const Frame& host = stack.frames.back();
  const InlineId wanted = host.function == now.step.function ? now.step.inlined : kNotInlined;
  if (host.inlined == wanted) return;
  const InlineId from_outer = (*chains)[host.inlined].outer, to_outer = (*chains)[wanted].outer;
  if (to_outer == host.inlined) return enter_inlined(now, wanted, now.step.begins, 0);
  if (from_outer == wanted) return leave_inlined(now, wanted, 0);
  leave_inlined(now, from_outer == to_outer ? to_outer : chains->common(host.inlined, wanted), 0);
  if (host.inlined != wanted) enter_inlined(now, wanted, now.step.begins, 0);
}

inline CallTree::State::Frame& CallTree::State::enter(Now& now, FrameKind kind, FunctionId function, Ip return_to, uint8_t flags,
                                                      std::optional<FrameKind> listed) {
  Stack& stack = now.stack;
  Frame& frame = stack.frames.emplace_back(now, function, flags);
  frame.kind = kind;
  frame.listed = listed.value_or(kind);
  frame.return_to = return_to;
  frame.kernel = is_kernel_half(now.step.to);
  put_enter(now, frame, frame.listed);
  return frame;
}

inline void CallTree::State::leave(Now& now, uint8_t flags) {
  if (now.stack.frames.back().inlined != kNotInlined) leave_inlined(now, kNotInlined, flags);
  const Frame& frame = now.stack.frames.back();
  put_leave(now, frame, frame.listed, flags);
  now.stack.frames.pop_back();
}

}  // namespace ptd
