// CallTree: turns steps of flow into calls with start and end, per thread, and attributes their time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/flow.h"
#include "ptdecode/function_table.h"

namespace ptd {

class FunctionProfile;
class InlineChains;
class ThreadSchedule;
struct CallGroup;
struct FlowStep;

/// How a function was entered.
enum class FrameKind : uint8_t {
  call,       ///< a call was seen
  tail,       ///< a jump to its first instruction, which ends the jumping function; its caller is that function's caller. Also for handlers
  interrupt,  ///< an interrupt, fault, trap or signal; it ends when the flow returns to the interrupted address
  syscall,    ///< a system call or software interrupt
  root,       ///< flow began or resumed inside it: its start is not known
  inlined,    ///< a function inlined in another one (CallTree::follow_inlined()); open while the flow is in that inlined copy
};

enum class CallStepKind : uint8_t {
  enter,
  leave,
  off,   ///< the thread stops running or being traced
  on,    ///< it runs again: `start` is when it stopped
  lost,  ///< flow is lost, or its calls could not be followed: all frames have been left, with kCallCut
};

/// Why a thread's stack of calls was abandoned.
enum class CallLoss : uint8_t {
  none,
  gap,             ///< flow was lost: see FlowStep::gap
  strange_return,  ///< a return that matches no open call: another stack, or a call from before the trace
  strange_resume,  ///< tracing resumed at another place than where it stopped
  new_program,     ///< exec
  window,          ///< another snapshot or AUX sample begins: what ran in between, on this cpu or of this thread, is unknown
  claimed,         ///< another thread announced the fibre (CallThread::fibre), and the times do not tell whether it had stopped before
};

/// Began before it was seen (kind root, and inlined functions that the flow of a root is in at first).
inline constexpr uint8_t kCallNoStart = 1;
inline constexpr uint8_t kCallCut = 2;    ///< its end was not seen: the flow was lost, or the trace ends
inline constexpr uint8_t kCallInner = 4;  ///< the same function is open further out: recursion
/// Not entered at its start, so not a new call. Inlined: continues a call that began before.
inline constexpr uint8_t kCallMiddle = 8;
inline constexpr uint8_t kCallUntraced = 16;    ///< its code was not traced
inline constexpr uint8_t kCallBreakpoint = 32;  ///< interrupt: an INT3 of a text poke or probe
inline constexpr uint8_t kCallKernel = 64;      ///< on: the kernel was not traced
/// leave: the trace gives no time of its start. Its times are unknown, and its durations are 0.
inline constexpr uint8_t kCallUndated = 64;
/// `time` or `start`, and the durations, are estimated from the rate of other code, because flow or a TSC is missing between the packets
/// that bound them.
inline constexpr uint8_t kCallEstimated = 128;

/// What happened to a thread's calls. Times in units of the timeline's clock. A plain value.
struct CallStep {
  CallStepKind kind = CallStepKind::enter;
  FrameKind frame = FrameKind::call;
  uint8_t flags = 0;                      ///< kCall* bits
  CallLoss loss = CallLoss::none;         ///< lost: why. leave: strange_return if a return ended the call, but to no place after a CALL
  GapReason gap = GapReason::bad_packet;  ///< with CallLoss::gap
  uint32_t thread = 0;                    ///< index into CallTree::threads()
  uint32_t depth = 0;                     ///< frames further out
  int32_t cpu = -1;                       ///< of a per-cpu stream
  FunctionId function = kNoFunction;
  TimeNs time, floor;         ///< as FlowStep
  TimeNs start, start_floor;  ///< leave: of the call; on: when it stopped
  /// leave: of the call, including its callees. on: of the pause that ends. These parts of time - start are not self time of any function.
  uint64_t off_cpu_ns = 0, untraced_ns = 0, lost_ns = 0;
  uint64_t self_ns = 0;                  ///< leave: in the function itself
  uint64_t instructions = 0;             ///< leave: including its callees
  uint64_t self_instructions = 0;        ///< leave: of the function itself
  uint64_t cycles = 0, self_cycles = 0;  ///< leave: core cycles likewise; 0 if the trace counts none
  [[nodiscard]] uint64_t total_ns() const { return time.value - start.value; }
};

/// CallThread::fibre where a thread runs a fibre and it is not known which one.
inline constexpr uint64_t kUnknownFibre = ~uint64_t{0};

/// A thread, or a fibre (CallWalkOptions::fibres), and a breakdown of its time. Time in which a fibre does not run is off-cpu time.
struct CallThread {
  /// cpu: for the idle task and unknown threads, of which each cpu has one. tid of a fibre: the first that ran it.
  int32_t pid = -1, tid = -1, cpu = -1;
  TimeNs first, last;
  uint64_t running_ns = 0, off_cpu_ns = 0, untraced_ns = 0, lost_ns = 0;
  uint64_t instructions = 0, cycles = 0;
  uint64_t gaps = 0;       ///< abandoned stacks: because of gaps
  uint64_t forgotten = 0;  ///< because of returns and places that no call explains
  uint64_t uncertain = 0;  ///< calls that an ambiguous or suspect block made or led to
  /// Times that longjmp went on in a recursive function, and several of its open calls may have been meant: one of them was taken.
  uint64_t guessed = 0;
  uint64_t folded = 0;  ///< calls deeper than CallTree::kMaxFrames, which are part of their caller
  uint64_t fibre = 0;   ///< 0: the thread's own stack. Else the number of the fibre in its process, or kUnknownFibre
};

/// An instruction that an interrupt, fault or signal kept from running, and that the flow did not come back to.
struct FlowEnd {
  SpaceId space = kNoSpace;
  Ip ip;
  TimeNs time;  ///< CallStep::time of the leave steps of the calls that were open
};

/// Keeps one stack per thread, and one per fibre that the program announces. Feed the steps of all streams in time order; a per-thread
/// stream may be fed independently of the others, unless it has steps of fibres. Not thread-safe. References that it returns are valid
/// until the next take(), restart() or finish().
///
/// Calls and returns that do not match are handled as follows:
///  - A return to the return address of an open call ends that call and all calls inside it.
///  - A return to a function's first instruction is a jump (retpolines). A return into an open function continues there (longjmp).
///  - A function jumps to another one's start, which returns or jumps back into it, at no return address that a CALL has pushed: then that
///    was a call. Such are computed jumps through the thunk of a retpoline, and functions that push the return address themselves.
///  - An exception goes on in the innermost call whose callee has this landing pad, as the tables of its file say.
///  - longjmp goes on in the innermost call of the function that called setjmp at that place. If that call has been continued by longjmp
///    and then calls longjmp itself, the next one further out is taken. Where several calls fit, CallThread::guessed counts it.
///  - A return without an open call leaves a function whose start was not seen: the caller becomes the root.
///  - Any other return, and a gap, abandons the stack. If a later return matches one of the abandoned calls, its callers are reopened as
///    calls without a start.
///  - A jump to another function's start is a tail call: the jumping function ends. A jump into the middle of an open function continues
///    there. A jump into the middle of another function continues under that function's name, but is not a call of it.
///  - An interrupt ends with the return from it (IRET, or tracing that resumes at the interrupted address), whatever is open inside it.
///  - A far return from user code to user code (LRET or IRET of a program) returns from an open call, or is a jump to where it leads.
///  - Code in the other half of the address space than the innermost call: calls of the kernel ended, or a call of the kernel began, at the
///    thread's last step. Their returns, or its entry, were in flow that was counted for another thread.
///  - A call of untraced code ends where traced flow resumes: no instruction is attributed to untraced code.
///  - Of calls deeper than kMaxFrames, only the return address and the function are kept. Their time and instructions are the last stored
///    call's own. A jump or return out of them goes on in the stored call that it is found in, by the rules above.
///  - Where the kernel returns to other user code than was interrupted, that is the handler of a signal. Its return ends it, and begins
///    the code that calls sigreturn, which ends at the interrupted address, at the system call that is executed again, or elsewhere.
///  - A fibre goes on with the calls that it had when another one was announced on its thread. After lost flow of a thread, or where
///    tracing resumes at another place than where it stopped, the thread runs an unknown fibre up to its next announcement. Calls that
///    fibres of the process had before the loss are abandoned where these fibres go on.
class PTD_API CallTree {
 public:
  static constexpr size_t kMaxFrames = 1U << 16;  ///< open calls of one thread that are followed

  /// `schedule` distinguishes off-cpu time from filtered or lost time. It may be null and must outlive the tree.
  explicit CallTree(const ThreadSchedule* schedule);
  ~CallTree();
  CallTree(CallTree&&) noexcept;
  CallTree& operator=(CallTree&&) noexcept;

  /// Makes the tree follow inlined functions. `chains` must be those of the flow, and outlive the tree.
  void follow_inlined(InlineChains& chains);
  /// Leaves steps of kind enter out of the output from here on.
  void leave_out_enters();
  /// Also leaves out steps of kind leave: adds their calls to `totals`, which must outlive the tree.
  void add_to(FunctionProfile& totals);
  /// Processes one step and appends the resulting call steps to `out`. Returns how many of them were left out.
  size_t take(const FlowStep& step, std::vector<CallStep>& out);
  /// Returns whether take(group) has the same effect as taking the steps that `group` replaces (docs/FLEET.md).
  [[nodiscard]] bool accepts(const CallGroup& group) const;
  /// Processes a group for which accepts() returned true. Returns the number of calls that are open around it. Produces no call steps.
  uint32_t take(const CallGroup& group);
  /// Returns whether a call of `function` is open around the group that was taken last.
  [[nodiscard]] bool is_open(FunctionId function) const;
  /// Starts counting at `time`: open calls are entered again without a start, and nothing earlier counts. All steps taken so far must be
  /// from before `time`. The instructions and cycles between a thread's last step and its next one are divided by time.
  void restart(TimeNs time, std::vector<CallStep>& out);
  /// Counts what the thread of `next` has executed up to `end`, of the instructions and cycles between its last step and `next`, a step
  /// after `end`: their share by time.
  void take_until(TimeNs end, const FlowStep& next);
  /// Ends the trace, or the wanted part of it: leaves all open calls, with kCallCut. If `until` is given, running threads run until then;
  /// threads that wait or are lost do so until then if `goes_on` returns that the thread continues after it.
  void finish(std::vector<CallStep>& out, TimeNs until = kTimeMin, const std::function<bool(const CallThread&)>& goes_on = {});
  [[nodiscard]] const std::vector<CallThread>& threads() const;
  /// After finish(): returns where an interrupt, fault or signal of user code ended a thread's flow. Empty if it ended otherwise, or may
  /// continue after the wanted part.
  [[nodiscard]] std::optional<FlowEnd> end_of(uint32_t thread) const;
  /// Returns whether finish() was called.
  [[nodiscard]] bool finished() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] PTD_API const char* sentence(CallLoss loss);

}  // namespace ptd
