// RecordTimes: bounds the wall-clock time at which a mapping was recorded.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ptd {

/// The first and the last time in a recording's records, in nanoseconds on its own clock; records without a time do not count.
struct RecordTimes {
  uint64_t first_ns = 0, last_ns = 0;

  void add(uint64_t time_ns) {
    if (time_ns == 0) return;
    first_ns = first_ns == 0 ? time_ns : std::min(first_ns, time_ns);
    last_ns = std::max(last_ns, time_ns);
  }
  /// Returns the latest wall-clock time, in nanoseconds since the epoch, at which something recorded at `time_ns` can have happened:
  /// the recording was written (`written_at_ns`) after its last record. What was recorded without a time existed before the first one.
  /// The clocks may differ by 0.1 %, and file times are as coarse as the kernel's ticks.
  [[nodiscard]] int64_t latest_wall_ns(uint64_t time_ns, int64_t written_at_ns) const {
    constexpr int64_t kTickNs = 20'000'000;
    constexpr uint64_t kDrift = 1000;
    const uint64_t span = last_ns - std::min(std::max(time_ns, first_ns), last_ns);
    const uint64_t elapsed = span - span / kDrift;
    if (written_at_ns <= 0 || elapsed >= static_cast<uint64_t>(written_at_ns)) return written_at_ns;
    return std::min(written_at_ns, written_at_ns - static_cast<int64_t>(elapsed) + kTickNs);
  }
};

}  // namespace ptd
