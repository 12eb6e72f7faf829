// LiveClock: the current time on the clock of a running recording.
#pragma once

#include <cstdint>
#include <optional>

#include "perfio/ring/event_ring.h"

namespace ptd::live {

/// CLOCK_MONOTONIC.
[[nodiscard]] uint64_t monotonic_ns();

/// Uses the kernel's conversion of the processor's counter. If the kernel publishes none, it uses the record that was read soonest after
/// its time: the clock is then late by the reader's delay, but never earlier than a record that was read. Copies are independent.
class LiveClock {
 public:
  /// Declares that a record with this time was read now.
  void saw(uint64_t record_time_ns);
  /// Has the kernel write a record of this thread (its name is set to what it is) and reads its time. For recordings whose own events may
  /// come late. Without permission for such an event, nothing changes.
  void see_own_record();
  /// Sets the conversion that the kernel currently publishes.
  void update(const perfio::EventRing& ring) { conversion_ = ring.time_conversion(); }
  [[nodiscard]] bool is_exact() const { return conversion_.has_value(); }
  /// Returns the current time; 0 while it is unknown.
  [[nodiscard]] uint64_t now_ns() const;
  /// Returns the time of a moment that another process read from the processor's counter and CLOCK_MONOTONIC; 0 while it is unknown. If the
  /// kernel publishes no conversion: early by the reader's delay.
  [[nodiscard]] uint64_t time_of(uint64_t ticks, uint64_t mono_ns) const;

 private:
  [[nodiscard]] uint64_t converted(uint64_t ticks) const;
  /// Returns the time of a moment of CLOCK_MONOTONIC by least_ahead_ns_.
  [[nodiscard]] uint64_t behind(uint64_t mono_ns) const;
  std::optional<perfio::TimeConvRecord> conversion_;
  static constexpr int64_t kUnknown = INT64_MAX;
  /// CLOCK_MONOTONIC when a record was read, less its time: the least of all. Negative if the clock of the records is ahead.
  int64_t least_ahead_ns_ = kUnknown;
  uint64_t latest_ns_ = 0;
};

}  // namespace ptd::live
