// RingLosses: the number of records that a ring has lost without a LOST record.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ptd::live {

/// The kernel writes LOST only before the next record that fits (kernel/events/ring_buffer.c, __perf_output_begin()). Only the counts of
/// the events (PERF_FORMAT_LOST) include losses after the last record. The kernel may report a loss that was already taken from the counts.
struct RingLosses {
  uint64_t by_kernel = 0;  ///< sum of the ring's LOST records
  uint64_t told = 0;       ///< in the recording

  /// Processes a LOST record of the kernel; returns how many of its losses are new.
  uint64_t on_record(uint64_t count) { return raise(by_kernel += count); }
  /// Processes the sum of the counts of the ring's events; returns how many losses are new.
  uint64_t on_total(uint64_t total) { return raise(total); }

 private:
  uint64_t raise(uint64_t total) {
    const uint64_t news = total - std::min(total, told);
    told = std::max(told, total);
    return news;
  }
};

}  // namespace ptd::live
