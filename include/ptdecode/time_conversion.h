// TSC ticks <-> perf nanoseconds, as struct perf_event_mmap_page defines it.
#pragma once

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd {

/// perf time = time_zero + ((tsc * time_mult) >> time_shift), in split form so that nothing overflows
/// (linux/perf_event.h, "time_zero"; tools/perf "Documentation/intel-pt.txt"). time_zero may be negative; a time before 0 is 0.
/// With time_mult == 0 there is no conversion: the timeline's clock is then raw ticks and both directions are the identity.
/// A plain value. `cap_user_time_short` recordings give time_cycles and time_mask: the counter is then first widened as the uapi header
/// says. Recordings of Intel PT whose TSCs need more bits than the 56 of a TSC packet get the same from for_short_counter().
struct PTD_API TimeConversion {
  uint16_t time_shift = 0;
  uint32_t time_mult = 0;
  uint64_t time_zero = 0;
  uint64_t time_cycles = 0;
  uint64_t time_mask = 0;
  bool cap_user_time_short = false;

  /// Returns the conversion of a clock that counts from 0, with `hz` (1 to 10^12) ticks per second.
  [[nodiscard]] static TimeConversion of_frequency(uint64_t hz);
  [[nodiscard]] bool valid() const { return time_mult != 0 && time_shift < 64; }

  /// Returns the same conversion for a counter of which only the lower `bits` (51 to 63) are known, and which is near `near`: to_ns() adds
  /// the others.
  [[nodiscard]] TimeConversion for_short_counter(Tsc near, unsigned bits) const;
  /// Returns `tsc` with the bits that a short counter does not have.
  [[nodiscard]] Tsc whole(Tsc tsc) const { return cap_user_time_short ? Tsc{time_cycles + ((tsc.value - time_cycles) & time_mask)} : tsc; }
  /// Converts ticks to nanoseconds, rounded down.
  [[nodiscard]] TimeNs to_ns(Tsc tsc) const;
  /// Returns how many ns so many ticks last, rounded down. Call if valid().
  [[nodiscard]] uint64_t duration_ns(uint64_t ticks) const {
    TimeConversion from_zero = *this;
    from_zero.time_zero = 0;
    from_zero.cap_user_time_short = false;
    return from_zero.to_ns(Tsc{ticks}).value;
  }
  /// Returns the smallest tick whose to_ns() is >= t.
  [[nodiscard]] Tsc to_tsc(TimeNs t) const;
  /// Converts ticks [first, last] to a time interval that covers them; the end is rounded up by one unit. A last tick of
  /// 2^64 - 1 is "unbounded" and gives kTimeMax.
  [[nodiscard]] Interval to_interval(Tsc first, Tsc last) const;
};

}  // namespace ptd
