// Windows: follows a trace quickly where its flow has no fork, else with all flows that the code allows.
#pragma once

#include <algorithm>

#include "decoder/arm/flows.h"

namespace ptd::arm {

enum class TraceStop : uint8_t { full, bound, end };

/// Fills batches from one segment. A stretch is tried with one flow. If it has a fork, its output is dropped and the stretch is followed
/// with all flows, up to the point where one is left. The output does not depend on where stretches begin.
/// A Trace provides flows(); position(), which grows with its packets; run(target, end), which stops at a packet at or after `end`, and
/// after one with a fork unless flows() takes forks; place() and go_to() for positions to return to, and copied(), the cost of place() in
/// packets.
template <typename Trace>
class Windows {
 public:
  explicit Windows(Trace& trace) : trace_(trace) {}

  void begin() {
    ready_.clear();
    ended_ = all_ = false;
    stretch_ = kLeast;
  }
  /// Returns false if the segment is done.
  bool fill(BatchTarget target) {
    for (;;) {
      give_ready(target);
      if (ended_ || target.is_full()) break;
      if (all_) {
        follow_all(target);
      } else {
        follow_one(target);
      }
    }
    return !ended_ || !is_empty(ready_);
  }

 private:
  static constexpr uint64_t kLeast = 64, kMost = 1U << 12;

  /// Follows the next stretch with one flow, or goes back to its start if it has a fork.
  void follow_one(BatchTarget target) {
    if (!trace_.changes()) {
      ended_ = trace_.run(target, ~uint64_t{0}) == TraceStop::end;
      return;
    }
    const uint64_t from = trace_.position();
    stretch_ = std::max(stretch_, trace_.copied());
    const auto place = trace_.place();
    const BatchPlace output = end_of(target.batch);
    const TraceStop stop = trace_.run(target, from + stretch_);
    if (!trace_.flows().met_fork()) {
      if (stop == TraceStop::bound) stretch_ = std::min(2 * stretch_, kMost);
      ended_ = stop == TraceStop::end;
      return;
    }
    truncate(target.batch, output);
    trace_.flows().forget_fork();
    trace_.go_to(place);
    all_ = stretch_ <= std::max(kLeast, trace_.copied());
    until_ = from + stretch_;
    stretch_ = kLeast;
    if (all_) trace_.flows().take_forks(true);
  }

  void follow_all(BatchTarget target) {
    const TraceStop stop = trace_.run({ready_, target.most}, until_);
    ended_ = stop == TraceStop::end;
    if (stop != TraceStop::bound) return;
    until_ = trace_.position() + 1;
    if (!trace_.flows().is_sure()) return;
    all_ = false;
    trace_.flows().take_forks(false);
  }

  /// Moves output that is ready into the batch, until that is full.
  void give_ready(BatchTarget target) {
    if (is_empty(ready_) || target.is_full()) return;
    const size_t room = target.most - target.batch.blocks.size();
    if (ready_.blocks.size() <= room) return append_batch(target.batch, ready_);
    Batch rest;
    split(ready_, place_of(ready_, room), rest);
    append_batch(target.batch, ready_);
    ready_ = std::move(rest);
  }

  Trace& trace_;
  Batch ready_;  ///< output of all flows
  bool ended_ = false;
  bool all_ = false;  ///< all flows are followed, up to a packet at or after `until_`
  uint64_t until_ = 0;
  uint64_t stretch_ = kLeast;  ///< size of the next stretch
};

}  // namespace ptd::arm
