// RingLosses: the number of records that a ring has lost without a LOST record.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ptd::live {

/// The kernel writes LOST only before the next record that fits (kernel/events/ring_buffer.c, __perf_output_begin()): what was lost behind
/// the last record is told by nobody but the events' own counts (PERF_FORMAT_LOST). Once it was told from those, the kernel may still tell
/// it too.
struct RingLosses {
  uint64_t by_kernel = 0;  ///< sum of the ring's LOST records
  uint64_t told = 0;       ///< in the recording

  /// A LOST record of the kernel: how many of its losses are news.
  uint64_t on_record(uint64_t count) { return raise(by_kernel += count); }
  /// The sum of the counts of the ring's events: how many losses are news.
  uint64_t on_total(uint64_t total) { return raise(total); }

 private:
  uint64_t raise(uint64_t total) {
    const uint64_t news = total - std::min(total, told);
    told = std::max(told, total);
    return news;
  }
};

}  // namespace ptd::live
