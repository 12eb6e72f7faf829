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

/// Trace of one segment.
// A lost part may hold a round of one cpu. Another one lost on the other cpu would make the counts equal again, and all rounds between them
// wrong.
TEST_F(Anchors, NothingIsCountedAfterALoss) {
  const auto whole = match_anchors(streams_, pokes_);
  constexpr size_t kLost = 9;
  streams_[1].points.erase(streams_[1].points.begin() + 2 * kLost);
  streams_[1].lost = TimeNs{at(kLost) - 50'000};
  streams_[1].end_offset_bytes = streams_[1].points[2 * kLost].stream_offset_bytes - 1;
  const auto spans = match_anchors(streams_, pokes_);
  ASSERT_EQ(spans.size(), 2U);
  for (const size_t stream : {0U, 1U}) {
    ASSERT_EQ(spans[stream].size(), 1 + 2 * kLost + 1);
    EXPECT_EQ(spans[stream].back().time, Interval{});
    for (size_t i = 0; i + 3 < spans[stream].size(); ++i) EXPECT_EQ(spans[stream][i].time, whole[stream][i].time) << i;
  }
}

class Scan : public ::testing::Test {
 protected:
  static constexpr uint64_t kEntry = 0xffffffff8104a2b0, kSameLowBits = 0xffffffff8204a2b0;
  void add(std::initializer_list<unsigned> bytes) {
    for (const unsigned byte : bytes) bytes_.push_back(static_cast<std::byte>(byte));
  }
  void add_psb() {
    for (int i = 0; i < 8; ++i) add({0x02, 0x82});
    add({0x02, 0x23});
  }
  void add_tip(uint64_t target) {
    add({0xcd});
    for (unsigned i = 0; i < 8; ++i) add({static_cast<unsigned>(target >> 8 * i & 0xff)});
  }
  void add_tsc(unsigned tsc) { add({0x19, tsc & 0xff, tsc >> 8 & 0xff, 0, 0, 0, 0, 0}); }
  AnchorStream stream() {
    AuxSegment segment;
    segment.bytes = bytes_;
    segment.stream_offset_bytes = 1000;
    AnchorStream stream;
    scan_anchors(segment, pt::Config{}, 0, {Ip{kEntry}}, {}, stream);
    return stream;
  }
  std::vector<AnchorPoint> points() { return stream().points; }
  std::vector<std::byte> bytes_;
};

TEST_F(Scan, FindsATipAtAnyOffset) {
  for (size_t before = 0; before < 40; ++before) {
    for (const size_t after : {size_t{0}, size_t{1}, size_t{54}, size_t{55}, size_t{63}, size_t{64}}) {
      bytes_.clear();
      add_psb();
      for (size_t i = 0; i < before; ++i) add({0x06});  // TNT
      const uint64_t at = bytes_.size();
      add_tip(kEntry);
      for (size_t i = 0; i < after; ++i) add({0x06});
      const std::vector<AnchorPoint> found = points();
      ASSERT_EQ(found.size(), 1U) << before << " " << after;
      EXPECT_EQ(found[0].stream_offset_bytes, 1000 + at);
    }
  }
}

TEST_F(Scan, FindsAShortTipByTheBytesBeforeIt) {
  add_psb();
  add_tip(kEntry ^ 0xffff);
  const uint64_t at = bytes_.size();
  add({0x2d, kEntry & 0xff, kEntry >> 8 & 0xff});  // the low 16 bits
  const std::vector<AnchorPoint> found = points();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].stream_offset_bytes, 1000 + at);
}

TEST_F(Scan, ComparesTheWholeTarget) {
  add_psb();
  add_tip(kSameLowBits);
  add({0x2d, kEntry & 0xff, kEntry >> 8 & 0xff});
  EXPECT_TRUE(points().empty());
}

TEST_F(Scan, BytesOfOtherPacketsAreNoTip) {
  add_psb();
  add_tip(uint64_t{kEntry & 0xffff} << 24 | 0x2d << 16);  // the payload looks like a short TIP
  EXPECT_TRUE(points().empty());
}

TEST_F(Scan, ASegmentWithAnOverflowIsLost) {
  add_psb();
  add_tip(uint64_t{0xf302});  // these bytes in another packet are none
  add_tip(kEntry);
  EXPECT_EQ(stream().points.size(), 1U);
  EXPECT_EQ(stream().lost, kTimeMax);
  add({0x02, 0xf3});
  EXPECT_TRUE(stream().points.empty());
  EXPECT_EQ(stream().end_offset_bytes, 1000U);
}

// Also if the damage hides the segment's only round.
TEST_F(Scan, ADamagedSegmentIsLost) {
  for (const bool has_round : {false, true}) {
    for (const bool zeroed : {false, true}) {
      bytes_.clear();
      add_psb();
      if (has_round) add_tip(kEntry);
      for (unsigned i = 0; i < 64 && zeroed; ++i) add({0x00});
      if (!zeroed) add({0x02, 0xff});
      add({0x06});
      const bool lost = zeroed || has_round;  // bytes that are no packet are looked for beside rounds only
      EXPECT_EQ(stream().lost != kTimeMax, lost) << has_round << zeroed;
      EXPECT_TRUE(stream().points.empty()) << has_round << zeroed;
    }
  }
  bytes_.clear();
  add_psb();
  add_tip(kEntry);
  add({0x19, 0x00});  // the trace ends inside a packet
  EXPECT_EQ(stream().lost, kTimeMax);
  EXPECT_EQ(stream().points.size(), 1U);
}

TEST_F(Scan, APacketAfterTheLastTipEndsItsTime) {
  add_psb();
  add_tsc(100);
  add({0x06});
  add_tip(kEntry);
  add({0x06});
  add_tsc(300);
  add_tsc(400);
  const std::vector<AnchorPoint> found = points();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].time, during(100, 300));
}

}  // namespace
}  // namespace ptd
