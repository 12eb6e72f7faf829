// Anchors: from rounds of synchronisation and positions of records to bounds of what a fetch may read.
#include "recording/trace/anchors.h"

#include <gtest/gtest.h>

namespace ptd {
namespace {

Interval during(uint64_t first, uint64_t last) { return {TimeNs{first}, TimeNs{last}}; }

/// Adds one poke of the kernel on cpu 0: a round, the record, a round; cpu 1 passes both rounds too. The clock is exact to 400 ns on either
/// side.
void add_poke(AnchorStream& poker, AnchorStream& other, uint64_t written) {
  const uint64_t offset = 100 * (poker.points.size() + 1);
  poker.points.push_back({offset, during(written - 1400, written - 600), false});
  poker.points.push_back({offset + 10, during(written - 400, written + 400), true});
  poker.points.push_back({offset + 20, during(written + 600, written + 1400), false});
  other.points.push_back({offset + 5, during(written - 1300, written - 500), false});
  other.points.push_back({offset + 25, during(written + 700, written + 1500), false});
}

class Anchors : public ::testing::Test {
 protected:
  Anchors() {
    streams_.resize(2);
    streams_[0].cpu = 0;
    streams_[1].cpu = 1;
    for (uint64_t i = 0; i < kPokes; ++i) {
      add_poke(streams_[0], streams_[1], at(i));
      pokes_.push_back({TimeNs{at(i)}, 0});
    }
  }
  static uint64_t at(uint64_t poke) { return 1'000'000 + 100'000 * poke; }
  static constexpr uint64_t kPokes = 16;
  std::vector<AnchorStream> streams_;
  std::vector<PokeStamp> pokes_;
};

// A record is written between the first and the second round of its poke: before the first round a cpu executes the old bytes, after it the
// new ones.
TEST_F(Anchors, RoundsBoundWhatAFetchMaySee) {
  const auto spans = match_anchors(streams_, pokes_);
  ASSERT_EQ(spans.size(), 2U);
  ASSERT_EQ(spans[1].size(), 1 + 2 * kPokes);
  EXPECT_EQ(spans[1][0].time, during(kTimeMin.value, at(0) - 1));
  EXPECT_EQ(spans[1][1].time, during(at(0) + 1, at(1) - 1));  // between the rounds of the first poke
  EXPECT_EQ(spans[1][2].time, during(at(0) + 1, at(1) - 1));
  EXPECT_EQ(spans[1][3].time, during(at(1) + 1, at(2) - 1));
  EXPECT_EQ(spans[1].back().time, during(at(kPokes - 1) + 1, kTimeMax.value));
}

TEST_F(Anchors, AStampJustOutsideOfItsPlaceStillBelongsToIt) {
  const auto exact = match_anchors(streams_, pokes_);
  pokes_[3].time.value += 900;  // the place ends 400 ns after the true time
  const auto late = match_anchors(streams_, pokes_);
  ASSERT_EQ(late.size(), 2U);
  EXPECT_EQ(late[1][7].time, during(at(3) + 901, at(4) - 1));
  EXPECT_EQ(late[1][9].time, exact[1][9].time);
}

TEST_F(Anchors, ARecordWithoutAPlaceLeavesTheOthers) {
  pokes_.insert(pokes_.begin() + 4, {TimeNs{at(3) + 50'000}, 0});  // written while its cpu was not traced
  const auto spans = match_anchors(streams_, pokes_);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[1][7].time, during(at(3) + 1, at(4) - 1));  // the record in between has no effect
  EXPECT_EQ(spans[1][9].time, during(at(4) + 1, at(5) - 1));
}

TEST_F(Anchors, ManyRecordsWithoutAPlaceGiveNothing) {
  for (PokeStamp& poke : pokes_) poke.time.value += 50'000;
  EXPECT_TRUE(match_anchors(streams_, pokes_).empty());
}

TEST_F(Anchors, LostRecordsLeaveTheOthersInPlace) {
  pokes_.erase(pokes_.begin() + 5);
  const auto spans = match_anchors(streams_, pokes_);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[1][11].time, during(at(4) + 1, at(6) - 1));
}

TEST_F(Anchors, RoundsThatRunBackInTimeGiveNothing) {
  for (AnchorPoint& point : streams_[1].points) point.time = during(at(kPokes + 5), at(kPokes + 6));
  EXPECT_TRUE(match_anchors(streams_, pokes_).empty());
}

// A stream that began later could be numbered from two different rounds according to the clocks, so there is no result.
TEST_F(Anchors, RoundsThatCanBeNumberedInTwoWaysGiveNothing) {
  streams_[1].points.erase(streams_[1].points.begin(), streams_[1].points.begin() + 6);
  EXPECT_TRUE(match_anchors(streams_, pokes_).empty());
}

}  // namespace
}  // namespace ptd
