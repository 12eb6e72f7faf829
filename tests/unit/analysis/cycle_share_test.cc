// CycleShare: cycles are assigned once, in any order of counts and times.
#include "analysis/base/cycle_share.h"

#include <gtest/gtest.h>

namespace ptd {
namespace {

constexpr bool kRuns = false, kPaused = true;

TEST(CycleShare, WhatPassedBetweenTwoCountsIsGivenWhateverRan) {
  CycleShare cycles;
  EXPECT_EQ(cycles.take(0, kRuns, 0), 0U);
  EXPECT_EQ(cycles.take(100, kRuns, 300), 300U);
  EXPECT_EQ(cycles.take(100, kRuns, 350), 50U);
  EXPECT_EQ(cycles.take(0, kRuns, 360), 10U);
}

TEST(CycleShare, AStretchWithoutACountGetsItsShareAndTheNextCountPutsItRight) {
  CycleShare cycles;
  cycles.take(0, kRuns, 0);
  cycles.take(100, kRuns, 200);
  EXPECT_EQ(cycles.take(50, kRuns, {}), 100U);
  EXPECT_EQ(cycles.take(50, kRuns, 500), 200U);  // 300 since the last count
  EXPECT_EQ(cycles.take(10, kRuns, {}), 25U);
  EXPECT_EQ(cycles.take(10, kRuns, 510), 0U);  // more was assigned than passed: the debt is carried over
  EXPECT_EQ(cycles.take(10, kRuns, 540), 15U);
}

TEST(CycleShare, APauseIsNobodys) {
  CycleShare cycles;
  cycles.take(0, kRuns, 0);
  cycles.take(100, kRuns, 200);
  EXPECT_EQ(cycles.take(0, kPaused, 5000), 0U);
  EXPECT_EQ(cycles.take(10, kRuns, 5020), 20U);
  EXPECT_EQ(cycles.take(30, kPaused, 9000), 60U);  // the cycles of 30 instructions
}

TEST(CycleShare, ACountThatGoesBackIsNone) {
  CycleShare cycles;
  cycles.take(0, kRuns, 0);
  EXPECT_EQ(cycles.take(100, kRuns, 1000), 1000U);
  EXPECT_EQ(cycles.take(0, kRuns, 0), 0U);
  EXPECT_EQ(cycles.take(100, kRuns, 1500), 500U);
}

TEST(CycleShare, ASegmentCountsAnew) {
  CycleShare cycles;
  cycles.take(0, kRuns, 0);
  cycles.take(100, kRuns, 200);
  cycles.begin_segment();
  EXPECT_EQ(cycles.take(10, kRuns, 0), 20U);  // after the last count: its share
  EXPECT_EQ(cycles.take(10, kRuns, 40), 40U);
  cycles.begin_segment();
  EXPECT_EQ(cycles.take(10, kRuns, 33), 33U);  // since the last CYC of the previous segment
  EXPECT_EQ(cycles.take(10, kRuns, 50), 17U);
}

TEST(CycleShare, WhatWasCountedBeforeAnythingRanIsNobodys) {
  CycleShare cycles;
  EXPECT_EQ(cycles.take(0, kRuns, 1000), 0U);
  EXPECT_EQ(cycles.take(10, kRuns, 1030), 30U);
}

// A walk that begins a few segments before it has the same shares.
TEST(CycleShare, SharesDependOnTheLastSegmentsWithCounts) {
  CycleShare cycles;
  for (const uint64_t rate : {90, 2, 2, 2, 2}) {
    cycles.begin_segment();
    cycles.take(0, kRuns, 0);
    cycles.take(100, kRuns, 100 * rate);
  }
  for (size_t i = 0; i < 2 * CycleShare::kRateSegments; ++i) {
    cycles.begin_segment();  // without counts
    EXPECT_EQ(cycles.take(100, kRuns, {}), 200U);
  }
}

TEST(CycleShare, WithoutCountsThereAreNone) {
  CycleShare cycles;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(cycles.take(100, i % 2 == 0, 0), 0U);
}

}  // namespace
}  // namespace ptd
