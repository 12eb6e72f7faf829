// Trace time to perf time.
#include "recording/perf/perf_time.h"

namespace ptd {

TimeConversion conversion_of(const perfio::IntelPtInfo& info, const perfio::TimeConvRecord& record) {
  TimeConversion time;
  if (record.time_mult != 0) {
    time.time_shift = static_cast<uint16_t>(record.time_shift);
    time.time_mult = static_cast<uint32_t>(record.time_mult);
    time.time_zero = record.time_zero;
    time.time_cycles = record.time_cycles;
    time.time_mask = record.time_mask;
    time.cap_user_time_short = record.cap_user_time_short;
  } else if (info.cap_user_time_zero) {
    time.time_shift = info.time_shift;
    time.time_mult = info.time_mult;
    time.time_zero = info.time_zero;
  }
  return time.valid() ? time : TimeConversion{};
}

}  // namespace ptd
