// Decodes the streams of a recording in parallel and outputs their calls in time order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ptdecode/call_tree.h"
#include "ptdecode/export.h"
#include "ptdecode/recording.h"

namespace ptd {

struct CallWalkOptions {
  std::vector<uint32_t> streams;                 ///< empty: all
  Interval time;                                 ///< only this range: earlier calls have no start, calls that end later are cut
  unsigned threads = 0;                          ///< number of decoding threads; 0: one per core
  std::function<void(uint64_t bytes)> progress;  ///< trace bytes decoded since the last call; any thread
  std::function<void(const Gap&)> on_gap;        ///< each gap; one call at a time
  /// Called regularly, on any thread. Returning true ends the walk: open calls are left, with kCallCut. Empty: never.
  std::function<bool()> stopped;
};

/// Gets the next steps, in time order within a thread and, as exactly as the streams' clocks allow, across threads. False stops the walk.
using CallSink = std::function<bool(std::span<const CallStep> steps, const CallTree& tree)>;

/// Walks the calls of a recording. The functions that occur are added to `functions`. Streams that overlap in time divide the threads by
/// size; each has at least one. The steps do not depend on the number of threads. A bounded number of batches and steps per stream is
/// buffered. Runs `sink` on the caller's thread. Sets `timed` (may be null) to false if no packet has a time. Errors: those of
/// Recording::decode.
PTD_API Status walk_calls(const Recording& recording, const CallWalkOptions& options, FunctionTable& functions, const CallSink& sink,
                  bool* timed = nullptr);

}  // namespace ptd
