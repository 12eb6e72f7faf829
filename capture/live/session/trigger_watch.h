// TriggerWatch: sets the probe of a session's trigger on all cpus, and reports when the target called the function, or when a call was
// slow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "capture/live/events/trigger_event.h"
#include "capture/live/session/target_threads.h"
#include "perfio/ring/event_ring.h"
#include "perfio/ring/live_event.h"

namespace ptd::live {

/// Counts the calls that meet a trigger's condition, from the hits of its probes. A call can begin on one cpu and return on another, and
/// the rings of cpus are read one after the other. A return without its call therefore waits for one more round. Plain state.
class CallTimer {
 public:
  struct Hit {
    uint64_t time_ns = 0;
    int32_t tid = -1;
    bool returns = false;
    bool waited = false;  ///< its call was not there in the round before
    int32_t pid = -1;     ///< 0 or -1: not known
  };
  /// A probe is on the function's entry or on its return, by the id of its event.
  using Probes = std::map<uint64_t, bool>;

  explicit CallTimer(uint64_t duration_ns) : duration_ns_(duration_ns) {}
  void add(const Hit& hit) { hits_.push_back(hit); }
  /// Adds a record of a ring: the hit that it samples, or a loss of hits.
  void on_record(Bytes record, const perfio::EventAttr& attr, const Probes& returns);
  /// Hits were lost until `time_ns`: calls that began before have no duration.
  void forget(uint64_t time_ns) { lost_ns_ = std::max(lost_ns_, time_ns); }
  /// Returns whether there are hits that were added in this round.
  [[nodiscard]] bool has_news() const;
  /// Removes the hits of this round that are not the target's.
  void keep(const TargetThreads& target);
  /// Ends a round. Returns how many calls took at least the duration; without a duration, how many began.
  uint64_t count();

 private:
  uint64_t duration_ns_;
  uint64_t lost_ns_ = 0;
  std::vector<Hit> hits_;                           // of this round, and returns that wait
  std::map<int32_t, std::vector<uint64_t>> calls_;  // tid -> starts of calls that have not returned
};

/// The probes are of all threads, and hits of others than the target's are dropped when they are read. Probes of threads cannot be
/// inherited: the kernel reads the path again when a thread starts one that inherits (kernel/events/core.c, perf_uprobe_event_init():
/// attr.uprobe_path is a pointer of the process that opened the event), and the clone() fails with EFAULT. Not thread-safe.
class TriggerWatch {
 public:
  /// `threads`: those of the target, EventSet::wanted_threads(). Errors: those of the kernel.
  static Result<std::unique_ptr<TriggerWatch>> open(const TriggerChoice& choice, const TargetChoice& target,
                                                    const std::vector<int32_t>& threads);
  /// After fork(), in the child: maps the rings again.
  Status map();
  /// In a process that takes over: continues where the former holder of the rings stopped.
  void take_over();
  /// Returns a descriptor that is readable when the function was hit.
  [[nodiscard]] std::vector<int> fds() const;
  /// Starts a round: reads all rings. Returns whether there are hits. Then the target's rings are to be read, into target(): a thread's
  /// FORK is there before its first hit.
  bool read();
  /// Ends the round. Returns how often the target met the trigger's condition in it.
  uint64_t count();
  [[nodiscard]] TargetThreads& target() { return target_; }

 private:
  TriggerWatch(const TriggerChoice& choice, TargetThreads target)
      : choice_(choice), timer_(choice.duration_ns), target_(std::move(target)) {}
  struct Ring {
    std::vector<perfio::LiveEvent> events;  // the first one owns the ring
    std::unique_ptr<perfio::EventRing> ring;
  };
  Status add(bool returns, int32_t cpu);
  static Status map_ring(Ring& to);
  TriggerChoice choice_;
  CallTimer timer_;
  TargetThreads target_;
  perfio::EventAttr attr_;
  CallTimer::Probes returns_;
  std::vector<Ring> rings_;
};

}  // namespace ptd::live
