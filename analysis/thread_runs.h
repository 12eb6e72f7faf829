// ThreadRuns: when each thread was on a cpu, by the records of context switches.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ptdecode/context_track.h"

namespace ptd {

/// Immutable after construction; any number of threads may read.
class ThreadRuns {
 public:
  struct Run {
    TimeNs first, last;
  };
  ThreadRuns() = default;
  explicit ThreadRuns(const ContextTrack& contexts);

  /// How much of [first, last] the thread was on no cpu. 0 for a thread without a record.
  [[nodiscard]] uint64_t off_ns(int32_t tid, TimeNs first, TimeNs last) const;
  /// The first and the last moment of [first, last] at which the thread was on no cpu; none if it was on one all the time.
  [[nodiscard]] std::optional<Interval> off_span(int32_t tid, TimeNs first, TimeNs last) const;

  /// Whether the thread gets on a cpu again after `t`.
  [[nodiscard]] bool runs_after(int32_t tid, TimeNs t) const;

 private:
  template <typename Take>
  void for_each_off(int32_t tid, TimeNs first, TimeNs last, const Take& take) const;
  std::unordered_map<int32_t, std::vector<Run>> runs_;
};

}  // namespace ptd
