// Decodes the streams of a recording in parallel and outputs their calls in time order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ptdecode/call_tree.h"
#include "ptdecode/export.h"
#include "ptdecode/function_profile.h"
#include "ptdecode/recording.h"

namespace ptd {

struct StepFiles;

struct CallWalkOptions {
  std::vector<uint32_t> streams;  ///< empty: all
  Interval time;                  ///< only this range: earlier calls have no start, calls that end later are cut
  unsigned threads = 0;           ///< number of threads, including the caller's; 0: one per core
  bool enters = true;             ///< false: leaves out steps of kind enter
  /// Not null: gets the calls of the range, as FunctionProfile::add() of their steps of kind leave, which are left out. Must outlive the
  /// walk.
  FunctionProfile* totals = nullptr;
  bool inlined = false;  ///< follows inlined functions of files with DWARF; has no effect with `steps`
  /// Follows fibres that the program announces by PTWRITE (docs/ANNOUNCE.md): each has calls of its own. Errors: contradictory_options with
  /// `steps`, not_recorded with several streams of a trace without times.
  bool fibres = false;
  /// With `steps`: follows every step. No group (docs/FLEET.md) is used in place of its steps.
  bool all_steps = false;
  std::function<void(uint64_t bytes)> progress;  ///< trace bytes decoded since the last call
  /// Each gap in the range, with the last mark before it, which names its thread; without a mark, all is unknown but the thread of the
  /// stream.
  std::function<void(const Gap&, const Mark&)> on_gap;
  /// Each event `skipped` of a loop or recursion without packets, whose rounds are not counted.
  std::function<void(const Event&)> on_rounds;
  std::shared_ptr<const StepFiles> steps;  ///< of the units of a plan, which were decoded before; null: decode
  /// With `steps`: called for each group (docs/FLEET.md) that is used in place of its call steps. `depth`: how many calls are open around
  /// it.
  std::function<void(uint32_t unit, uint32_t group, uint32_t depth)> on_group;
  /// Called regularly. Returning true ends the walk: open calls are left, with kCallCut. Empty: never.
  std::function<bool()> stopped;
};

/// Walks the calls of a recording. Steps come in time order within a thread and, as exactly as the streams' clocks allow, across threads.
/// Last, thread by thread, come those of the calls and pauses that are open where the trace ends: they end when their thread was seen last.
/// The functions that occur are added to `functions`. Other threads decode; the calls are followed on the caller's thread, which decodes
/// too while it has nothing to follow. Streams that overlap in time divide the threads by size. With one thread, the caller's does
/// everything; with more, each stream has at least one of its own. The steps do not depend on the number of threads. A bounded number of
/// batches and steps per stream is buffered. All functions of CallWalkOptions are called on the caller's thread.
///
/// The recording and the table of functions must outlive the cursor. Not thread-safe. Destroying it ends its threads.
class PTD_API CallCursor {
 public:
  /// Decoding begins with the first next(). Functions that occur are added to `functions`.
  CallCursor(const Recording& recording, CallWalkOptions options, FunctionTable& functions);
  ~CallCursor();
  CallCursor(const CallCursor&) = delete;
  CallCursor& operator=(const CallCursor&) = delete;

  /// Sets `steps` to the next steps, which are valid until the next call and may be none. Returns false if there are no more.
  bool next(std::span<const CallStep>& steps);
  /// Returns the tree after the steps of the last next().
  [[nodiscard]] const CallTree& tree() const;
  /// Returns whether any packet so far had a time.
  [[nodiscard]] bool timed() const;
  /// Adds the calls of groups (CallWalkOptions::on_group) to a profile that has all call steps. Call it after next() has returned false.
  /// Returns false if a distribution of durations is less exact than without groups. In that case, walk again with
  /// CallWalkOptions::all_steps.
  [[nodiscard]] bool add_finished(FunctionProfile& profile) const;
  /// Returns the final status once next() has returned false. Errors: those of Recording::decode().
  [[nodiscard]] const Status& status() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Receives the next steps, in the order of CallCursor. Returning false stops the walk.
using CallSink = std::function<bool(std::span<const CallStep> steps, const CallTree& tree)>;

/// Passes the steps of a CallCursor to `sink`, on the caller's thread. Sets `timed` (may be null) to false if no packet has a time. Errors:
/// those of Recording::decode().
PTD_API Status walk_calls(const Recording& recording, const CallWalkOptions& options, FunctionTable& functions, const CallSink& sink,
                          bool* timed = nullptr);

}  // namespace ptd
