// TimeConversion: both directions of the perf clock formula, exact in 128 bits.
#include "ptdecode/time_conversion.h"

namespace ptd {

TimeConversion TimeConversion::of_frequency(uint64_t hz) {
  constexpr unsigned __int128 kNsPerSecond = 1'000'000'000;
  constexpr uint16_t kMostShift = 32;
  TimeConversion made;
  made.time_shift = kMostShift;
  while (made.time_shift != 0 && (kNsPerSecond << made.time_shift) / hz > UINT32_MAX) --made.time_shift;
  made.time_mult = static_cast<uint32_t>(((kNsPerSecond << made.time_shift) + hz / 2) / hz);
  return made;
}

// The counter's values are up to half a wrap from `near`. Where they begin is a multiple of 2^kAligned, so that they do not wrap within a
// small part.
TimeConversion TimeConversion::for_short_counter(Tsc near, unsigned bits) const {
  constexpr unsigned kAligned = 50;
  TimeConversion made = *this;
  made.time_mask = (uint64_t{1} << bits) - 1;
  made.time_cycles = (near.value - (uint64_t{1} << (bits - 1))) >> kAligned << kAligned;
  made.cap_user_time_short = true;
  return made;
}

TimeNs TimeConversion::to_ns(Tsc tsc) const {
  if (!valid()) return TimeNs{tsc.value};
  const uint64_t cycles = whole(tsc).value;
  const uint64_t quotient = cycles >> time_shift;
  const uint64_t remainder = cycles & ((uint64_t{1} << time_shift) - 1);
  // remainder * mult needs 128 bits for shifts above 32.
  const auto low = static_cast<uint64_t>((static_cast<unsigned __int128>(remainder) * time_mult) >> time_shift);
  const __int128 ns = static_cast<__int128>(static_cast<int64_t>(time_zero)) + static_cast<__int128>(quotient) * time_mult + low;
  return TimeNs{ns < 0 ? 0 : static_cast<uint64_t>(ns)};
}

Tsc TimeConversion::to_tsc(TimeNs t) const {
  if (!valid()) return Tsc{t.value};
  if (static_cast<int64_t>(time_zero) > 0 && t.value < time_zero) return Tsc{0};
  const uint64_t ns = t.value - time_zero;
  const uint64_t quotient = ns / time_mult;
  const uint64_t remainder = ns % time_mult;
  const unsigned __int128 scaled = static_cast<unsigned __int128>(remainder) << time_shift;
  const auto low = static_cast<uint64_t>((scaled + time_mult - 1) / time_mult);
  return Tsc{(quotient << time_shift) + low};
}

Interval TimeConversion::to_interval(Tsc first, Tsc last) const {
  if (last.value == ~uint64_t{0}) return {to_ns(first), kTimeMax};
  Interval interval{to_ns(first), to_ns(last)};
  if (valid() && interval.last < kTimeMax) interval.last.value += 1;
  return interval;
}

}  // namespace ptd
