// LossTimes: for how long whose flow was lost, and when in the run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "decoder/batch.h"
#include "image/context_track.h"

namespace ptd {

/// Of one thread. Time in which tracing was off (another thread, kernel, filter) is in neither.
struct ThreadLoss {
  uint64_t traced_ns = 0, lost_ns = 0;
  std::array<uint64_t, kGapReasons> gaps{}, lost_by_reason_ns{};  ///< lost time goes to the reason that began it
};

/// Fed with one stream's batches in order. Not thread-safe.
///
/// A loss goes from the gap's time to the time of the next block that is known to have run. On a cpu it is shared out among the threads
/// that the switches tell; of a thread's own stream only what it spent on a cpu counts.
class LossTimes {
 public:
  static constexpr size_t kBins = 60;
  struct Bin {
    uint64_t traced_ns = 0, lost_ns = 0;
  };
  using Threads = std::map<std::pair<int32_t, int32_t>, ThreadLoss>;  ///< by pid and tid

  /// `cpu` or `tid` of the stream, -1 for the other. `span` is what the bins share out evenly: bounded on both sides, or there are no bins.
  LossTimes(const ContextTrack& contexts, int32_t cpu, int32_t tid, Interval span);
  void take(const Batch& batch);
  /// The stream is over; what is lost then is so up to `end`.
  void finish(TimeNs end);

  [[nodiscard]] const Threads& threads() const { return threads_; }
  [[nodiscard]] const std::array<Bin, kBins>& bins() const { return bins_; }

 private:
  enum class State : uint8_t { unknown, flowing, off, lost };
  struct Run {
    TimeNs first, last;
  };
  void pass(TimeNs time);
  void begin_loss(const Gap& gap);
  void end_loss();
  void take_event(const Event& event);
  void add_lost(TimeNs first, TimeNs last, const Context& whose);
  void add_to_bins(TimeNs first, TimeNs last, uint64_t Bin::*what);
  [[nodiscard]] ThreadLoss& thread() { return threads_[{pid_, tid_}]; }

  const ContextTrack& contexts_;
  const int32_t cpu_, stream_tid_;
  const Interval span_;
  std::vector<Run> runs_;  ///< of the thread of a thread's stream
  State state_ = State::unknown;
  TimeNs now_, lost_since_;
  bool has_time_ = false;
  GapReason reason_ = GapReason::bad_packet;
  int32_t pid_ = -1, tid_ = -1;
  Threads threads_;
  std::array<Bin, kBins> bins_{};
};

}  // namespace ptd
