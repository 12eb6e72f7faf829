// CallTree: steps of flow -> calls that begin and end, thread by thread, with what of their time was whose.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/flow.h"
#include "ptdecode/function_table.h"

namespace ptd {

class ThreadRuns;
struct FlowStep;

/// How a function came to run.
enum class FrameKind : uint8_t {
  call,       ///< a call was seen
  tail,       ///< a jump to its first instruction; its caller is the caller of the function that jumped, which is over. Also of handlers
  interrupt,  ///< an interrupt, fault, trap or signal; it ends where flow goes back to the place that it struck
  syscall,    ///< a system call or software interrupt
  root,       ///< flow began or resumed inside of it: its start is not known
};

enum class CallStepKind : uint8_t {
  enter,
  leave,
  off,   ///< the thread stops running, or to be traced
  on,    ///< it runs again: `start` is when it stopped
  lost,  ///< flow is lost, or its calls could not be followed: all frames have been left, with kCallCut
};

/// Why all that was known of a thread's calls was given up.
enum class CallLoss : uint8_t {
  none,
  gap,             ///< flow was lost: see FlowStep::gap
  strange_return,  ///< a return to where nobody had called from: another stack, or a call from before the trace
  strange_resume,  ///< tracing went on elsewhere than where it had stopped
  new_program,     ///< exec
  too_deep,        ///< more than kMaxFrames calls open
};

inline constexpr uint8_t kCallNoStart = 1;      ///< began before it was seen (kind root)
inline constexpr uint8_t kCallCut = 2;          ///< its end was not seen: the flow was lost, or the trace ends
inline constexpr uint8_t kCallInner = 4;        ///< the same function is open further out: recursion
inline constexpr uint8_t kCallMiddle = 8;       ///< entered elsewhere than at its start: no call of it
inline constexpr uint8_t kCallUntraced = 16;    ///< where it ran was not traced
inline constexpr uint8_t kCallBreakpoint = 32;  ///< interrupt: an INT3 of a text poke or probe
inline constexpr uint8_t kCallKernel = 64;      ///< on: it was the kernel that was not traced

/// What happened to a thread's calls. Times in units of the timeline's clock.
struct CallStep {
  CallStepKind kind = CallStepKind::enter;
  FrameKind frame = FrameKind::call;
  uint8_t flags = 0;  ///< kCall* bits
  CallLoss loss = CallLoss::none;
  GapReason gap = GapReason::bad_packet;  ///< with CallLoss::gap
  uint32_t thread = 0;                    ///< index into CallTree::threads()
  uint32_t depth = 0;                     ///< frames further out
  int32_t cpu = -1;                       ///< of a per-cpu stream
  FunctionId function = kNoFunction;
  TimeNs time, floor;         ///< as FlowStep
  TimeNs start, start_floor;  ///< leave: of the call; on: when it stopped
  /// leave: of the call, with all that it called. on: of the stretch that ends. They are parts of time - start that are nobody's own.
  uint64_t off_cpu_ns = 0, untraced_ns = 0, lost_ns = 0;
  uint64_t self_ns = 0;                  ///< leave: in the function itself
  uint64_t instructions = 0;             ///< leave: with all that it called
  uint64_t self_instructions = 0;        ///< leave: of the function itself
  uint64_t cycles = 0, self_cycles = 0;  ///< leave: core cycles likewise; 0 if the trace counts none
  [[nodiscard]] uint64_t total_ns() const { return time.value - start.value; }
};

/// A thread and what became of its time.
struct CallThread {
  int32_t pid = -1, tid = -1, cpu = -1;  ///< cpu: of the idle task and of unknown threads, which are one a cpu
  TimeNs first, last;
  uint64_t running_ns = 0, off_cpu_ns = 0, untraced_ns = 0, lost_ns = 0;
  uint64_t instructions = 0, cycles = 0;
  uint64_t gaps = 0, forgotten = 0;  ///< stacks given up: by gaps, for other reasons
};

/// Keeps one stack a thread. Feed steps of all streams in order of time; a stream that is one thread's needs no such order among others.
///
/// What is done where call and return do not match:
///  - A return to an address that an open call waits for ends that call and all further in.
///  - A return to a function's first instruction is a jump (retpolines); one into a function that is open goes on there (longjmp).
///  - A return with no call open leaves a function whose start was not seen: the caller becomes the root.
///  - Any other return, and a gap, gives the stack up. Should a later return go where one of the given-up calls was awaited, its callers
///    are taken up again as calls without a start.
///  - A jump to another function's start is a tail call: the function that jumps is over. Elsewhere into a function that is open: goes on
///    there. Into another: it goes on under its name, which is no call of it.
///  - The end of an interrupt is the return from it (IRET, or tracing that resumes where it struck), whatever was open inside.
class PTD_API CallTree {
 public:
  static constexpr size_t kMaxFrames = 1U << 16;

  /// `runs` tells off-cpu time from time that was filtered or lost; may be null, must outlive the tree.
  explicit CallTree(const ThreadRuns* runs);
  ~CallTree();
  CallTree(CallTree&&) noexcept;
  CallTree& operator=(CallTree&&) noexcept;

  /// Appends what the step means to `out`.
  void take(const FlowStep& step, std::vector<CallStep>& out);
  /// Counting begins at `time`: what is open has no start from here on, and is entered anew; nothing before counts. Every step taken so far
  /// was of before `time`.
  void restart(TimeNs time, std::vector<CallStep>& out);
  /// The trace, or what of it is wanted, is over: what is open is left, cut. If `until` is given, threads that run do so up to then, and
  /// those that wait, or are lost, do so up to then if `goes_on` says that there is more of them after it.
  void finish(std::vector<CallStep>& out, TimeNs until = kTimeMin, const std::function<bool(const CallThread&)>& goes_on = {});
  [[nodiscard]] const std::vector<CallThread>& threads() const;
  /// Whether finish() was called: nothing more will come.
  [[nodiscard]] bool finished() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] PTD_API const char* sentence(CallLoss loss);

}  // namespace ptd
