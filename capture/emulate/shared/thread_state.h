// ThreadState: the trace state of one emulated thread, in memory that outlives the process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace ptd::emulate {

/// What every block that a thread enters changes.
struct TraceStep {
  uint64_t branches = 0;  ///< branch results that wait for a TNT packet, the last one in bit 0
  uint64_t ip = 0;        ///< of the block that was entered last; valid with kEntered
  uint64_t insns = 0;
  uint32_t branch_count = 0;
  enum Flag : uint32_t {
    kEnabled = 1,   ///< tracing is on
    kLosing = 2,    ///< packets are being lost
    kEntered = 4,   ///< a block was entered, and how much of it ran is open
    kHeld = 8,      ///< nothing of that block ran: the thread waits before it
    kEnded = 16,    ///< the logs are complete
    kTotals1 = 32,  ///< which totals go with this step
  };
  uint32_t flags = 0;
  /// The logs say all that there is to say if the thread dies now.
  [[nodiscard]] bool is_settled() const { return (flags & (kEnded | kHeld)) != 0 || (flags & (kEnabled | kEntered)) == 0; }
};

/// What changes when packets are written.
struct TraceTotals {
  uint64_t packet_bytes = 0, truth_bytes = 0;  ///< valid data of the two logs
  uint64_t tsc = 0;
  uint64_t irregular = 0, overflows = 0;
};

/// The trace of a thread after one step of the emulator: what its logs hold, and what the encoder still keeps to itself.
struct TraceMoment {
  TraceStep step;
  TraceTotals totals;
};

/// Lives in the head of a thread's packet log (a shared mapping). A step is published by one store, so that a process that is killed at any
/// instruction leaves the last whole step. One writer.
class ThreadState {
 public:
  /// The next step, to be filled in place (a copy would wait for the stores to its parts); it counts from publish() on.
  [[nodiscard]] TraceStep& next() { return steps_[next_]; }
  /// Totals that go with the next step and all that follow.
  void set_totals(const TraceTotals& totals) {
    totals_flag_ ^= TraceStep::kTotals1;
    totals_[totals_flag_ != 0 ? 1 : 0] = totals;
  }
  [[nodiscard]] uint32_t totals_flag() const { return totals_flag_; }
  void publish() {
    current_.store(next_, std::memory_order_release);
    next_ = 1 - next_;
  }
  [[nodiscard]] const TraceStep& step() const { return steps_[current_.load(std::memory_order_acquire) & 1]; }
  [[nodiscard]] TraceMoment read() const { return {step(), totals_[(step().flags & TraceStep::kTotals1) != 0 ? 1 : 0]}; }

 private:
  alignas(64) std::array<TraceStep, 2> steps_;
  alignas(64) std::atomic<uint32_t> current_{0};
  uint32_t next_ = 1, totals_flag_ = 0;
  std::array<TraceTotals, 2> totals_;
};

/// How the trace of a thread ended.
struct ThreadEnd {
  TraceMoment moment;
  bool unknown = false;  ///< the process was killed: how much ran of the block that was entered last is not known
};

/// Completes the logs STEM.pt and STEM.truth of a thread that is gone: adds the branches that wait and the end of tracing. If the thread
/// was killed in a block, or its logs are cut, tracing ends before that block: more may have run. A log that cannot be completed (full
/// disk) says that it is cut. Safe to repeat.
[[nodiscard]] ThreadEnd complete_thread(const std::string& stem, bool has_truth);

}  // namespace ptd::emulate
