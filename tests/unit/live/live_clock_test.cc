// Times of announcements where the kernel publishes no conversion of the processor's counter.
#include "capture/live/events/live_clock.h"

#include <gtest/gtest.h>
#include <time.h>

namespace ptd::live {
namespace {

constexpr uint64_t kMs = 1'000'000;

uint64_t monotonic_ns() {
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

TEST(LiveClock, NoRecordNoTime) {
  const LiveClock clock;
  EXPECT_EQ(clock.time_of(1, monotonic_ns()), 0U);
  EXPECT_EQ(clock.now_ns(), 0U);
}

// The records' times are ten seconds later than CLOCK_MONOTONIC, or earlier. The last record is the one with the longest delay between its
// time and its reading.
TEST(LiveClock, TheRecordThatIsReadSoonestDecides) {
  constexpr int64_t kOffsetNs = 10'000 * static_cast<int64_t>(kMs);
  for (const int64_t offset_ns : {kOffsetNs, -kOffsetNs}) {
    LiveClock clock;
    const uint64_t before = monotonic_ns() + static_cast<uint64_t>(offset_ns);
    clock.saw(before);
    const uint64_t after = monotonic_ns() + static_cast<uint64_t>(offset_ns);
    clock.saw(before - static_cast<uint64_t>(2 * kOffsetNs));
    const uint64_t moment = monotonic_ns();
    const uint64_t time = clock.time_of(0, moment), truth = moment + static_cast<uint64_t>(offset_ns);
    EXPECT_LE(time, truth);
    EXPECT_LE(truth - time, after - before) << "late by more than the reader's delay";
    EXPECT_GE(clock.now_ns(), time);
  }
}

}  // namespace
}  // namespace ptd::live
