// LossTimes: how long each thread's flow was lost, and when.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "analysis/flow_dates.h"
#include "analysis/thread_schedule.h"
#include "ptdecode/context_track.h"
#include "ptdecode/flow.h"
#include "ptdecode/flow_cursor.h"

namespace ptd {

/// The loss of one thread. Time in which tracing was off (another thread, kernel, filter) is in neither sum.
struct ThreadLoss {
  bool dated = false;  ///< the trace gives times; else both sums are unknown
  uint64_t traced_ns = 0, lost_ns = 0;
  std::array<uint64_t, kGapReasons> gaps{}, lost_by_reason_ns{};  ///< lost time is attributed to the reason that started it
};

/// Fed with one stream's batches in order. Not thread-safe. The contexts must outlive it. References are valid as long as it lives.
///
/// A loss starts at the gap, or at the start or interrupt before it if no instruction was decoded after that. It ends at the next block
/// that is known to have run, or at the next stop of the trace. In a per-cpu stream it is divided among the threads by the context
/// switches; in a per-thread stream only time on a cpu counts. FlowDates determines how much of the time was traced, as for calls.
class LossTimes {
 public:
  static constexpr size_t kBins = 60;
  struct Bin {
    uint64_t traced_ns = 0, lost_ns = 0;
  };
  using Threads = std::map<std::pair<int32_t, int32_t>, ThreadLoss>;  ///< by pid and tid

  /// `cpu` or `tid` of the stream, -1 for the other. `span` is divided evenly into the bins; no bins if it is unbounded.
  LossTimes(const ContextTrack& contexts, int32_t cpu, int32_t tid, Interval span, const FlowClock& clock = {});
  void take(const Batch& batch);
  /// Ends the stream. A flow that is lost at this point stays lost up to `end`.
  void finish(TimeNs end);

  [[nodiscard]] const Threads& threads() const { return threads_; }
  [[nodiscard]] const std::array<Bin, kBins>& bins() const { return bins_; }

 private:
  static constexpr size_t kMaxHeld = 1U << 16;
  enum class State : uint8_t { unknown, flowing, off, lost };
  /// The state of the flow, and its thread, from one point on.
  struct Change {
    State state = State::unknown;
    GapReason reason = GapReason::bad_packet;
    int32_t pid = -1, tid = -1;
    bool unproved = false;  ///< flowing, but no instruction was decoded since
  };
  void take_mark(const Mark& mark);
  void take_event(const Event& event);
  void take_gap(const Gap& gap);
  /// A sequence of blocks without marks, events or gaps in between; at least one.
  void take_blocks(std::span<const Block> blocks);
  void take_steady();
  void change(State state, bool resumes = false);
  void resume(bool waited);
  void settle(State becomes);
  void settle(Change& change, State becomes) const;
  void take_time(TimeNs time) {
    if (!dates_.in_ns()) return;
    if (!dates_.timed() || dates_.now() < time) pass_to(time);
  }
  void pass_to(TimeNs time);
  void put(std::span<const FlowDates::Date> dates);
  void apply(const Change& change, TimeNs at);
  void pass(TimeNs time);
  void share_loss(TimeNs first, TimeNs last);
  void add_lost(TimeNs first, TimeNs last, const Change& whose);
  void add_to_bins(TimeNs first, TimeNs last, uint64_t Bin::*what);
  [[nodiscard]] ThreadLoss& thread(const Change& whose) {
    ThreadLoss& loss = threads_[{whose.pid, whose.tid}];
    loss.dated |= dates_.timed();
    return loss;
  }

  const ContextTrack& contexts_;
  const int32_t cpu_, stream_tid_;
  const Interval span_;
  std::vector<ThreadSchedule::OnCpu> runs_;  ///< of the thread of a thread's stream
  FlowCursor cursor_;
  FlowDates dates_;
  std::vector<Change> held_;  ///< each has a point of dates_
  Change last_;               ///< the last change
  Change now_;                ///< the last change that was dated; time before since_ is accounted for
  TimeNs since_;
  bool proved_ = true;  ///< an instruction was decoded since the flow resumed or was interrupted
  bool began_ = false;
  bool synced_ = false;                  ///< the last mark gives the time of the next block
  State resumed_from_ = State::unknown;  ///< the state before the flow last resumed or was interrupted
  Threads threads_;
  std::array<Bin, kBins> bins_{};
};

}  // namespace ptd
