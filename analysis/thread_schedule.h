// ThreadSchedule: when each thread was on a cpu, from the context switch records.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ptdecode/context_track.h"

namespace ptd {

/// Immutable after construction; any number of threads may read. Does not refer to the contexts that it was made from. Knows nothing of any
/// thread if the recording has no context switches: then only the start of each thread's trace is recorded.
class ThreadSchedule {
 public:
  struct OnCpu {
    TimeNs first, last;
  };
  ThreadSchedule() = default;
  explicit ThreadSchedule(const ContextTrack& contexts);

  /// Returns for how much of [first, last] the thread was on no cpu. 0 for a thread without a record.
  [[nodiscard]] uint64_t off_ns(int32_t tid, TimeNs first, TimeNs last) const;
  /// Returns the first and last time in [first, last] at which the thread was on no cpu; none if it was on a cpu all the time.
  [[nodiscard]] std::optional<Interval> off_span(int32_t tid, TimeNs first, TimeNs last) const;

  /// Returns when the thread was on a cpu, in order of time; empty if that is not known.
  [[nodiscard]] const std::vector<OnCpu>& runs(int32_t tid) const;
  /// Returns whether the thread runs on a cpu again after `t`.
  [[nodiscard]] bool runs_after(int32_t tid, TimeNs t) const;

 private:
  template <typename Take>
  void for_each_off(int32_t tid, TimeNs first, TimeNs last, const Take& take) const;
  std::unordered_map<int32_t, std::vector<OnCpu>> on_cpu_;
};

}  // namespace ptd
