// LossTimes: for how long whose flow was lost, and when in the run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "analysis/flow_dates.h"
#include "ptdecode/context_track.h"
#include "ptdecode/flow.h"

namespace ptd {

/// Of one thread. Time in which tracing was off (another thread, kernel, filter) is in neither.
struct ThreadLoss {
  uint64_t traced_ns = 0, lost_ns = 0;
  std::array<uint64_t, kGapReasons> gaps{}, lost_by_reason_ns{};  ///< lost time goes to the reason that began it
};

/// Fed with one stream's batches in order. Not thread-safe.
///
/// A loss goes from the gap, or from the start or interrupt before it after which no instruction was decoded, to the time of the next block
/// that is known to have run, or to the next stop of the trace. On a cpu it is shared out among the threads that the switches tell; of a
/// thread's own stream only what it spent on a cpu counts. What of the time was traced FlowDates says, as for calls.
class LossTimes {
 public:
  static constexpr size_t kBins = 60;
  struct Bin {
    uint64_t traced_ns = 0, lost_ns = 0;
  };
  using Threads = std::map<std::pair<int32_t, int32_t>, ThreadLoss>;  ///< by pid and tid

  /// `cpu` or `tid` of the stream, -1 for the other. `span` is what the bins share out evenly: bounded on both sides, or there are no bins.
  LossTimes(const ContextTrack& contexts, int32_t cpu, int32_t tid, Interval span, const FlowClock& clock = {});
  void take(const Batch& batch);
  /// The stream is over; what is lost then is so up to `end`.
  void finish(TimeNs end);

  [[nodiscard]] const Threads& threads() const { return threads_; }
  [[nodiscard]] const std::array<Bin, kBins>& bins() const { return bins_; }

 private:
  static constexpr size_t kMaxHeld = 1U << 16;
  enum class State : uint8_t { unknown, flowing, off, lost };
  struct Run {
    TimeNs first, last;
  };
  /// From some point on: what the flow does, and whose it is.
  struct Change {
    State state = State::unknown;
    GapReason reason = GapReason::bad_packet;
    int32_t pid = -1, tid = -1;
    bool unproved = false;  ///< flowing, but no instruction was decoded since
  };
  void take_mark(const Mark& mark);
  void take_event(const Event& event);
  void take_gap(const Gap& gap);
  /// Blocks with nothing between them, one at least.
  void take_blocks(std::span<const Block> blocks);
  void change(State state, bool resumes = false);
  void resume(bool waited);
  void settle(State becomes);
  void settle(Change& change, State becomes) const;
  void told(TimeNs time);
  void put(std::span<const FlowDates::Date> dates);
  void apply(const Change& change, TimeNs at);
  void pass(TimeNs time);
  void share_loss(TimeNs first, TimeNs last);
  void add_lost(TimeNs first, TimeNs last, const Change& whose);
  void add_to_bins(TimeNs first, TimeNs last, uint64_t Bin::*what);
  [[nodiscard]] ThreadLoss& thread(const Change& whose) { return threads_[{whose.pid, whose.tid}]; }

  const ContextTrack& contexts_;
  const int32_t cpu_, stream_tid_;
  const Interval span_;
  std::vector<Run> runs_;  ///< of the thread of a thread's stream
  FlowDates dates_;
  std::vector<Change> held_;  ///< each has a point of dates_
  Change last_;               ///< the last change
  Change now_;                ///< the last change that was dated; time before since_ is accounted for
  TimeNs since_;
  bool proved_ = true;  ///< an instruction was decoded since the flow resumed or was interrupted
  bool began_ = false;
  bool synced_ = false;  ///< a mark has just told when the next block ran
  State resumed_from_ = State::unknown;  ///< what the flow was before it resumed or was interrupted last
  Threads threads_;
  std::array<Bin, kBins> bins_{};
};

}  // namespace ptd
