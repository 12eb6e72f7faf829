// LiveClock: the current time on the clock of a running recording.
#pragma once

#include <cstdint>
#include <optional>

#include "perfio/ring/event_ring.h"

namespace ptd::live {

/// By the kernel's conversion of the processor's counter; where it publishes none, by the record that was read soonest after its time: then
/// late by what the reader was, but never before a record that was read. A value: a copy goes on by itself.
class LiveClock {
 public:
  /// A record with this time was read now.
  void saw(uint64_t record_time_ns);
  /// The conversion as it is published now.
  void update(const perfio::EventRing& ring) { conversion_ = ring.time_conversion(); }
  [[nodiscard]] bool is_exact() const { return conversion_.has_value(); }
  /// 0 as long as it is unknown.
  [[nodiscard]] uint64_t now_ns() const;

 private:
  std::optional<perfio::TimeConvRecord> conversion_;
  uint64_t least_ahead_ns_ = ~uint64_t{0};  // CLOCK_MONOTONIC when a record was read, less its time: the least of all
  uint64_t latest_ns_ = 0;
};

}  // namespace ptd::live
