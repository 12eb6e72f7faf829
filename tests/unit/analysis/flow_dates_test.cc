// FlowDates: running and waiting time, from hand-made times and instruction counts. The truth is what each case declares.
#include "analysis/flow_dates.h"

#include <gtest/gtest.h>

#include <utility>

namespace ptd {
namespace {

constexpr uint64_t kTick = 1000, kSecond = 1'000'000'000;

/// A stream: runs, stops and resumes, with times where packets give them. Sums up the time between its starts and stops.
class Stream {
 public:
  explicit Stream(const FlowClock& clock) : dates_(clock) { at(0); }
  Stream& at(uint64_t time) {
    for (const FlowDates::Date& date : dates_.anchor(TimeNs{kBase + time})) {
      moments_.push_back(date.time.value - kBase);
      estimated_.push_back(dates_.estimated());
    }
    return *this;
  }
  Stream& run(uint64_t instructions) {
    dates_.ran(instructions);
    return *this;
  }
  Stream& segment(bool timed = true) {
    dates_.begin_segment(kTimeMin, timed);
    return *this;
  }
  Stream& know_clock() {
    dates_.set_clock_known();
    return *this;
  }
  Stream& start(bool slept = false) {
    dates_.add(std::exchange(started_, true), slept);
    dates_.set_flowing(true);
    return *this;
  }
  /// A call, say.
  Stream& point() {
    dates_.add(false);
    return *this;
  }
  /// What ran so far had retired by `time`.
  Stream& bound(uint64_t time) {
    dates_.bound(TimeNs{kBase + time});
    return *this;
  }
  Stream& stop() {
    dates_.add(false);
    dates_.set_flowing(false);
    return *this;
  }
  /// Flow is lost, and resumes before the next time.
  Stream& lose(bool packets = false) {
    stop();
    dates_.set_beside_loss(packets);
    return *this;
  }
  [[nodiscard]] const std::vector<uint64_t>& moments() const { return moments_; }
  [[nodiscard]] const std::vector<bool>& estimated() const { return estimated_; }

  static constexpr uint64_t kBase = 5000;

 private:
  FlowDates dates_;
  bool started_ = false;
  std::vector<uint64_t> moments_;
  std::vector<bool> estimated_;
};

// A walk of a time window begins in the middle of the stream: what is older than some segments must not change the dates.
TEST(FlowDates, DoNotDependOnWhereTheStreamIsEntered) {
  constexpr size_t kSegments = 20;
  const auto play = [](size_t first) {
    Stream stream({.tick_ns = kTick});
    stream.start();
    for (size_t k = first; k < kSegments; ++k) {
      stream.segment();
      const uint64_t begin = (k + 1) * 100 * kTick, speed = k * k % 37 + 1;
      for (uint64_t i = 0; i < 10; ++i) stream.run(speed * 10).at(begin + i * kTick);
      stream.run(speed).stop().at(begin + 50 * kTick).start().run(speed * 3).at(begin + 51 * kTick);
    }
    const std::vector<uint64_t>& all = stream.moments();
    return std::vector<uint64_t>(all.end() - 2, all.end());  // of the last stop and start
  };
  const std::vector<uint64_t> truth = play(0);
  for (size_t first = 1; first + FlowDates::kRateSegments < kSegments; ++first) EXPECT_EQ(play(first), truth) << first;
}

TEST(FlowDates, CodeBeforeTheFirstKnownTimeHasThatTime) {
  constexpr TimeNs kFirst{5 * kSecond};
  FlowDates dates({.tick_ns = kTick, .first = kFirst});
  dates.set_flowing(true);
  for (int i = 0; i < 2; ++i) {
    dates.ran(1000);
    dates.add(false);
    const std::span<const FlowDates::Date> undated = dates.anchor_undated(false);
    ASSERT_EQ(undated.size(), 1U);
    EXPECT_EQ(undated[0].time, kFirst);
  }
  EXPECT_FALSE(dates.timed());
  dates.ran(1000);
  dates.add(false);
  const std::span<const FlowDates::Date> told = dates.anchor(TimeNs{kFirst.value - 10});  // a packet within the segment
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].time, kFirst);
}

TEST(FlowDates, ASecondAfterAStopIsWaitingThoughNoRateIsKnown) {
  for (const uint64_t tick : {uint64_t{0}, kTick}) {
    Stream stream({.tick_ns = tick});
    stream.start().run(40).stop().at(kSecond).start().run(10).at(kSecond + 100);
    ASSERT_EQ(stream.moments().size(), 3U);
    EXPECT_LE(stream.moments()[1] - stream.moments()[0], 40 * FlowDates::kSlowestNs);
    EXPECT_GE(stream.moments()[2], kSecond);
    EXPECT_GE(stream.moments()[2] - stream.moments()[1], kSecond * 99 / 100);
  }
}

TEST(FlowDates, NothingRanLongerThanToTheNextTimingPacketThatWasDue) {
  Stream stream({.tick_ns = kTick});
  stream.start();
  for (uint64_t i = 1; i <= 10; ++i) stream.run(10).at(i * kTick);  // slow code: 100 ns each
  stream.run(1000).stop().at(kSecond);                              // fast code, then a wait
  ASSERT_EQ(stream.moments().size(), 2U);
  EXPECT_LE(stream.moments()[1], 11 * kTick);
}

TEST(FlowDates, AShortPauseBeforeALongOneStaysShort) {
  Stream stream({.tick_ns = kTick});
  stream.start().run(100).at(kTick);
  stream.run(10).stop().start().run(10).stop().at(kSecond);  // reads a clock, then sleeps
  ASSERT_EQ(stream.moments().size(), 4U);
  EXPECT_LE(stream.moments()[3], 2 * kTick);
}

TEST(FlowDates, APauseThatIsOverWithoutAPacketInItIsShorterThanAPeriod) {
  Stream stream({.tick_ns = kTick});
  stream.start().run(1000).at(kTick);              // 1 ns each
  stream.stop().start().run(1000).at(20 * kTick);  // a system call, then slow code
  ASSERT_EQ(stream.moments().size(), 3U);
  EXPECT_LE(stream.moments()[2] - stream.moments()[1], kTick);
}

TEST(FlowDates, ACoreThatSleepsSendsNoPackets) {
  Stream stream({.tick_ns = kTick});
  stream.start().run(1000).at(kTick).stop().start(true).run(100).at(kSecond);  // HLT, then an interrupt
  ASSERT_EQ(stream.moments().size(), 3U);
  EXPECT_GE(stream.moments()[2] - stream.moments()[1], kSecond - kTick - 100);
}

TEST(FlowDates, WithoutTicksPausesShareTheTimeEvenly) {
  Stream stream({});
  stream.start().run(1000).at(1000);
  stream.run(100).stop().start().run(100).stop().at(1000 + 200 + 6000).start().at(7300);
  ASSERT_EQ(stream.moments().size(), 5U);
  EXPECT_EQ(stream.moments()[1], 1100U);
  EXPECT_EQ(stream.moments()[2] - stream.moments()[1], 3000U);
  EXPECT_EQ(stream.moments()[4] - stream.moments()[3], 3000U + 100U);
}

TEST(FlowDates, WithoutAPauseAllIsRunning) {
  Stream stream({.tick_ns = kTick});
  stream.start().run(1).at(kSecond).run(1).stop().at(kSecond + 10);
  EXPECT_EQ(stream.moments()[1], kSecond + 10);
}

// A pause does not make its neighbours' dates estimates, missing flow does: up to the packets before and after it.
TEST(FlowDates, DatesBesideMissingFlowAreEstimates) {
  Stream stream({.tick_ns = kTick});
  stream.start().run(100).stop().start().at(kTick);
  stream.run(100).lose().start().run(100).stop().start().at(2 * kTick);
  stream.run(100).stop().start().at(3 * kTick);
  EXPECT_EQ(stream.estimated(), (std::vector<bool>{false, false, false, true, true, true, true, false, false}));
}

// Times after packets are lost, or in a segment without a TSC, are lower bounds up to the next one with an upper bound, or to the next
// segment.
TEST(FlowDates, DatesOfALostClockAreEstimates) {
  for (const bool has_tsc : {false, true}) {
    for (const bool known : {false, true}) {
      Stream stream({.tick_ns = kTick});
      stream.start().run(100).at(kTick).segment(has_tsc);
      if (has_tsc) stream.run(100).lose(true).start();
      stream.run(100).at(2 * kTick);
      if (known) stream.know_clock();
      stream.run(100).stop().start().at(3 * kTick);
      stream.run(100).stop().start().at(4 * kTick).segment().run(100).stop().start().at(5 * kTick);
      stream.run(100).stop().start().at(6 * kTick);
      std::vector<bool> want = {false, true, true, !known, !known, !known, !known, false, false};
      if (has_tsc) want.insert(want.begin() + 1, {true, true});
      EXPECT_EQ(stream.estimated(), want) << has_tsc << known;
    }
  }
}

// Between two packets, code ran that a packet without a time bounds: what came after it took the rest.
TEST(FlowDates, CodeThatHadRetiredIsNotLaterThanItsBound) {
  Stream stream({.tick_ns = kTick});
  stream.start().run(100).point().run(100).bound(400).point().run(1).point().at(1000);
  EXPECT_EQ(stream.moments(), (std::vector<uint64_t>{0, 200, 400, 1000}));
  Stream even({.tick_ns = kTick});
  even.start().run(100).point().bound(600).run(100).point().bound(600).at(1000);  // the second bound is the stricter one
  EXPECT_EQ(even.moments(), (std::vector<uint64_t>{0, 300, 600}));
  Stream several({.tick_ns = kTick});
  several.start().run(10).bound(100).point().run(10).bound(300).point().run(10).bound(2000).point().run(10).point().at(1000);
  EXPECT_EQ(several.moments(), (std::vector<uint64_t>{0, 100, 300, 650, 1000}));
}

// As where a signal's handler returns to an instruction that takes long: all pauses lie before the bound.
TEST(FlowDates, PausesBeforeABoundAreNotLaterThanIt) {
  Stream stream({.tick_ns = kTick});
  stream.start().run(1000).at(1000).stop().start().run(10).stop().start().bound(1500).run(1).stop().at(kSecond);
  ASSERT_EQ(stream.moments().size(), 6U);
  EXPECT_LE(stream.moments()[4], 1500U);
  EXPECT_LE(stream.moments()[5], 1500U + kTick);
}

/// Thread 7 leaves its cpu at `out` and comes back at `in`.
ThreadSchedule schedule(uint64_t out, uint64_t in) {
  ContextTrack contexts;
  contexts.add_switch(0, TimeNs{1}, {7, 7, kNoSpace});
  contexts.add_switch(0, TimeNs{Stream::kBase + out}, {8, 8, kNoSpace});
  contexts.add_switch(0, TimeNs{Stream::kBase + in}, {7, 7, kNoSpace});
  contexts.sort();
  return ThreadSchedule(contexts);
}

TEST(FlowDates, NothingRunsWhileTheThreadIsOnNoCpu) {
  const ThreadSchedule away = schedule(50, 9000);
  Stream open({.schedule = &away, .tid = 7});
  open.start().run(1000).stop().at(9000);  // at the usual rate it would run for 5000 ns
  EXPECT_LE(open.moments()[1], 50U);
  Stream over({.schedule = &away, .tid = 7});
  over.start().run(1000).stop().start().run(1000).at(9200);
  EXPECT_LE(over.moments()[1], 50U);
  EXPECT_GE(over.moments()[2], 9000U);
}

TEST(FlowDates, SwitchRecordsSayWhichPauseWasLong) {
  const ThreadSchedule away = schedule(400, kSecond);
  Stream stream({.schedule = &away, .tid = 7});
  stream.start().run(20).stop().start().run(20).stop().at(kSecond);
  ASSERT_EQ(stream.moments().size(), 4U);
  EXPECT_LE(stream.moments()[3], 400U);
}

}  // namespace
}  // namespace ptd
