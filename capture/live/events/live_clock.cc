// LiveClock: see live_clock.h.
#include "capture/live/events/live_clock.h"

#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "perfio/format/wire.h"
#include "perfio/ring/live_event.h"
#include "ptdecode/time_conversion.h"

namespace ptd::live {

uint64_t monotonic_ns() {
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

void LiveClock::saw(uint64_t record_time_ns) {
  least_ahead_ns_ = std::min(least_ahead_ns_, static_cast<int64_t>(monotonic_ns() - record_time_ns));
  latest_ns_ = std::max(latest_ns_, record_time_ns);
}

void LiveClock::see_own_record() {
  constexpr int kTries = 3;  // the first may have been slow
  perfio::EventSpec spec;
  spec.tasks = true;
  spec.exclude_kernel = spec.exclude_hv = true;
  Result<perfio::LiveEvent> event = perfio::LiveEvent::open(spec, {static_cast<int32_t>(gettid()), -1});
  if (!event) return;
  const Result<std::unique_ptr<perfio::EventRing>> ring = perfio::EventRing::map(event->fd(), 1);
  if (!ring) return;
  std::array<char, 16> name{};
  if (prctl(PR_GET_NAME, name.data()) != 0) return;
  for (int i = 0; i < kTries; ++i) {
    (void)prctl(PR_SET_NAME, name.data());
    (void)(*ring)->drain([this](Bytes record) {
      constexpr size_t kTrailerBytes = 32, kTimeAt = 8;  // LiveEvent: tid, time, cpu, identifier
      if (record.size() < perfio::kRecordHeaderBytes + kTrailerBytes || perfio::read_record_header(record).type != perfio::kRecordComm)
        return;
      uint64_t time = 0;
      std::memcpy(&time, record.data() + record.size() - kTrailerBytes + kTimeAt, sizeof(time));
      saw(time);
    });
  }
}

uint64_t LiveClock::converted(uint64_t ticks) const {
  TimeConversion conversion;
  conversion.time_shift = static_cast<uint16_t>(conversion_->time_shift);
  conversion.time_mult = static_cast<uint32_t>(conversion_->time_mult);
  conversion.time_zero = conversion_->time_zero;
  conversion.time_cycles = conversion_->time_cycles;
  conversion.time_mask = conversion_->time_mask;
  conversion.cap_user_time_short = conversion_->cap_user_time_short;
  return conversion.to_ns(Tsc{ticks}).value;
}

uint64_t LiveClock::behind(uint64_t mono_ns) const {
  const auto ahead = static_cast<uint64_t>(least_ahead_ns_);
  return least_ahead_ns_ > 0 ? mono_ns - std::min(mono_ns, ahead) : mono_ns - ahead;
}

uint64_t LiveClock::now_ns() const {
#if defined(__x86_64__)
  if (conversion_) return converted(__builtin_ia32_rdtsc());
#endif
  return least_ahead_ns_ == kUnknown ? 0 : std::max(latest_ns_, behind(monotonic_ns()));
}

uint64_t LiveClock::time_of(uint64_t ticks, uint64_t mono_ns) const {
  if (conversion_ && ticks != 0) return converted(ticks);
  return least_ahead_ns_ == kUnknown ? 0 : behind(mono_ns);
}

}  // namespace ptd::live
