// ReplayRun: moves a ReplayCursor until something that a debugger waits for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "replay/replay_cursor.h"
#include "replay/window_edge.h"

namespace ptd::replay {

/// Addresses at which a run stops. Of each block it remembers whether an address lies in it.
class BreakSet {
 public:
  void add(Ip ip);
  void remove(Ip ip);
  [[nodiscard]] bool contains(Ip ip) const;
  [[nodiscard]] bool empty() const { return ips_.empty(); }
  /// Returns whether an address lies within a block of a stream.
  bool touches(uint32_t stream, NodeId node, const BlockInfo& info);

 private:
  std::vector<Ip> ips_;                        // sorted
  std::vector<std::vector<uint8_t>> touched_;  // stream, node -> 0: not known, 1: no, 2: yes
};

/// Every thread, as a request names it.
inline constexpr ThreadKey kAnyThread = -1;

enum class StopReason : uint8_t {
  budget,      ///< enough blocks were passed; continue with another call
  stepped,     ///< an instruction of the thread was passed
  breakpoint,  ///< before the instruction at a breakpoint
  gap,         ///< the flow was lost here, or a step reached the edge of a window of trace
  time,        ///< a chosen time was passed
  /// Before flow of another user space: the process has executed a program. Backward: before the last instruction that ran earlier.
  space,
  edge,  ///< the end of the recording, or its beginning
};

/// What a run passed that its user wants to know.
struct ReplayNote {
  TimeNs time;
  ThreadKey thread = kNoThread;
  std::string text;
};

struct RunRequest {
  bool backward = false;
  ThreadKey step = kNoThread;     ///< stop after an instruction of this thread, or of any (kAnyThread)
  ThreadKey resumed = kNoThread;  ///< a breakpoint at the next instruction of this thread has been reported already
  /// sorted: the flow of other threads passes, without a stop at their breakpoints and gaps; empty: all threads stop.
  std::vector<ThreadKey> only;
  std::vector<TimeNs> times;  ///< stop where one of these is passed
  SpaceId space = kNoSpace;   ///< stop at user code of another space; kNoSpace: do not
  bool keeps_notes = false;   ///< of the run before: it is part of the same movement
};

struct RunResult {
  StopReason reason = StopReason::budget;
  ThreadKey thread = kNoThread;  ///< that of the instruction, event or gap
};

/// Runs of one cursor. A position at which a run stops is before an instruction, except where the recording has none.
class ReplayRun {
 public:
  static constexpr uint64_t kBudgetBlocks = 1U << 18;
  static constexpr size_t kMostNotes = 12;

  explicit ReplayRun(ReplayCursor& cursor) : cursor_(&cursor) {}

  BreakSet& breaks() { return breaks_; }
  /// Starts a run; then call go_on() until it returns another reason than `budget`.
  void begin(const RunRequest& request);
  RunResult go_on();
  /// Returns the notes since begin(), and the number of those that were left out.
  [[nodiscard]] const std::vector<ReplayNote>& notes() const { return notes_; }
  [[nodiscard]] uint64_t more_notes() const { return more_notes_; }
  /// Returns the number of edges between windows of trace (snapshots, AUX samples) that the run passed since begin(), which was no step.
  [[nodiscard]] uint64_t windows() const { return windows_; }
  /// Returns whether flow of threads other than RunRequest::only has passed since begin().
  [[nodiscard]] bool passed_others() const { return passed_others_; }

 private:
  RunResult forward();
  RunResult backward();
  std::optional<RunResult> forward_blocks(uint64_t& budget);
  std::optional<RunResult> backward_blocks(uint64_t& budget);
  RunResult at_end();
  void step_back();
  RunResult leave_space();
  RunResult after_gap(ThreadKey thread);
  static std::optional<bool> cut_ahead(ReplayCursor& ahead, ThreadKey thread, uint32_t stream);
  std::optional<RunResult> after_step(ThreadKey thread);
  void leave_cut_off();
  void pass_gap();
  void pass_gap_backward(ThreadKey thread);
  bool passes_time();
  [[nodiscard]] bool stops(ThreadKey thread) const;
  [[nodiscard]] bool leaves_space() const;
  void note(ThreadKey thread, TimeNs time, std::string text);
  void note_event();
  void note_ends();
  void note_gap(const ReplayCursor& at);
  void note_window(const ReplayCursor& at);
  bool stops_at_window();
  bool reaches_window(ThreadKey thread);

  ReplayCursor* cursor_;
  BreakSet breaks_;
  RunRequest request_;
  bool first_ = true;               // no instruction has been passed
  bool gap_behind_ = false;         // backward: a gap was passed, and the instruction before it not yet
  bool window_behind_ = false;      // the same of the edge of a window, at which steps stop
  std::optional<WindowEdge> edge_;  // of the thread that steps, after an edge was passed
  TimeNs before_;                   // of the last item
  std::vector<ReplayNote> notes_;
  uint64_t more_notes_ = 0, windows_ = 0;
  bool passed_others_ = false;
};

}  // namespace ptd::replay
