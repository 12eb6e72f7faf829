// Decodes the streams of a recording side by side and gives out their calls in order of time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ptdecode/call_tree.h"
#include "ptdecode/export.h"
#include "ptdecode/recording.h"

namespace ptd {

struct CallWalkOptions {
  std::vector<uint32_t> streams;                 ///< empty: all
  Interval time;                                 ///< only this: calls that began before have no start, those that go on behind it are cut
  unsigned threads = 0;                          ///< that decode; 0: one for each core
  std::function<void(uint64_t bytes)> progress;  ///< trace bytes decoded since the last call; any thread
  std::function<void(const Gap&)> on_gap;        ///< each gap; one call at a time
  /// Called now and then, by any thread. True ends the walk: calls that are open are left, cut. Empty: never.
  std::function<bool()> stopped;
};

/// Walks the calls of a recording, and returns their steps in order of time within a thread and, up to the streams' clocks, among them.
/// Streams that overlap in time share the threads by size; each has at least one. The steps do not depend on the number of threads. Bounded
/// numbers of batches and steps of each stream wait for their turn.
///
/// The recording and the table of functions must outlive the cursor. Not thread-safe. Destroying it ends its threads.
class PTD_API CallCursor {
 public:
  /// Decoding begins with the first next(). `functions` gets the functions met.
  CallCursor(const Recording& recording, CallWalkOptions options, FunctionTable& functions);
  ~CallCursor();
  CallCursor(const CallCursor&) = delete;
  CallCursor& operator=(const CallCursor&) = delete;

  /// Sets `steps` to the next steps, which are valid until the next call and may be none. Returns false if there are no more.
  bool next(std::span<const CallStep>& steps);
  /// The tree after the steps of the last next().
  [[nodiscard]] const CallTree& tree() const;
  /// Whether a packet told a time.
  [[nodiscard]] bool timed() const;
  /// Errors: those of Recording::decode(). Known when next() has returned false.
  [[nodiscard]] const Status& status() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Gets the next steps, in order of time within a thread and, up to the streams' clocks, among them; false stops.
using CallSink = std::function<bool(std::span<const CallStep> steps, const CallTree& tree)>;

/// Passes the steps of a CallCursor to `sink`, on the caller's thread. False in `timed` (may be null): no packet told a time. Errors: those
/// of Recording::decode().
PTD_API Status walk_calls(const Recording& recording, const CallWalkOptions& options, FunctionTable& functions, const CallSink& sink,
                  bool* timed = nullptr);

}  // namespace ptd
