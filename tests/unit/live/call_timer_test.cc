// CallTimer: which calls a trigger counts, from hits in the order in which rings are read.
#include <gtest/gtest.h>

#include "capture/live/session/trigger_watch.h"

namespace ptd::live {
namespace {

constexpr int32_t kOne = 1, kTwo = 2;

TEST(CallTimer, WithoutADurationEveryCallCounts) {
  CallTimer timer(0);
  EXPECT_EQ(timer.count(), 0U);
  timer.add({10, kOne, false, false});
  timer.add({5, kTwo, false, false});
  EXPECT_EQ(timer.count(), 2U);
  EXPECT_EQ(timer.count(), 0U);
}

TEST(CallTimer, CallsOfEachThreadNest) {
  CallTimer timer(100);
  timer.add({0, kOne, false, false});
  timer.add({50, kOne, false, false});  // the inner call takes 60, the outer one 200
  timer.add({60, kTwo, false, false});
  timer.add({110, kOne, true, false});
  timer.add({159, kTwo, true, false});  // 99
  EXPECT_EQ(timer.count(), 0U);
  timer.add({200, kOne, true, false});
  EXPECT_EQ(timer.count(), 1U);
}

TEST(CallTimer, AReturnWaitsARoundForItsCallOfAnotherRing) {
  CallTimer timer(100);
  timer.add({300, kOne, true, false});
  EXPECT_EQ(timer.count(), 0U);
  timer.add({100, kOne, false, false});
  EXPECT_EQ(timer.count(), 1U);
  timer.add({400, kTwo, true, false});  // its call began before the probe
  EXPECT_EQ(timer.count(), 0U);
  EXPECT_EQ(timer.count(), 0U);
  timer.add({350, kTwo, false, false});
  timer.add({380, kTwo, true, false});  // 30
  EXPECT_EQ(timer.count(), 0U);
}

}  // namespace
}  // namespace ptd::live
