// CallTimer: which calls a trigger counts, from hits in the order in which rings are read.
#include <gtest/gtest.h>

#include "capture/live/session/trigger_watch.h"
#include "perfio/format/byte_writer.h"
#include "perfio/format/wire.h"

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

/// Records of a ring whose event 1 is hit on entry and event 2 on return.
class Ring {
 public:
  explicit Ring(CallTimer& timer) : timer_(timer), attr_(perfio::file_attr({}, "uprobe")) {}
  void hit(uint64_t time_ns, uint64_t event) {
    std::vector<std::byte> record;
    perfio::ByteWriter(record).u32(perfio::kRecordSample).u16(0).u16(48).u64(event).u64(0x1000).i32(kOne).i32(kOne).u64(time_ns).u64(0);
    timer_.on_record(record, attr_, kReturns);
  }
  void lose(uint64_t time_ns) {
    std::vector<std::byte> record;
    perfio::ByteWriter(record).u32(perfio::kRecordLost).u16(0).u16(56).u64(1).u64(7).i32(kOne).i32(kOne).u64(time_ns).u64(0).u64(1);
    timer_.on_record(record, attr_, kReturns);
  }

 private:
  inline static const CallTimer::Probes kReturns = {{1, false}, {2, true}};
  CallTimer& timer_;
  perfio::EventAttr attr_;
};

TEST(CallTimer, RecordsAreHits) {
  CallTimer timer(100);
  Ring ring(timer);
  ring.hit(10, 1);
  ring.hit(20, 3);  // another event
  ring.hit(120, 2);
  EXPECT_EQ(timer.count(), 1U);
}

TEST(CallTimer, ACallWhoseReturnIsLostHasNoDuration) {
  CallTimer timer(100);
  Ring ring(timer);
  ring.hit(10, 1);  // its return is lost
  EXPECT_EQ(timer.count(), 0U);
  ring.lose(500);  // and so is the next call
  ring.hit(500, 2);
  EXPECT_EQ(timer.count(), 0U);
  ring.hit(600, 1);
  ring.hit(650, 2);
  EXPECT_EQ(timer.count(), 0U);
  ring.hit(700, 1);
  ring.hit(800, 2);
  EXPECT_EQ(timer.count(), 1U);
}

TEST(CallTimer, HitsOfALossOfTheSameRound) {
  CallTimer timer(100), counter(0);
  for (CallTimer* each : {&timer, &counter}) {
    Ring ring(*each);
    ring.hit(10, 1);
    ring.hit(490, 2);  // on another cpu
    ring.lose(500);
    ring.hit(510, 1);
  }
  EXPECT_EQ(timer.count(), 0U);
  EXPECT_EQ(counter.count(), 2U);  // calls need no return
  timer.add({610, kOne, true, false});
  EXPECT_EQ(timer.count(), 1U);
}

}  // namespace
}  // namespace ptd::live
