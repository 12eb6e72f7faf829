// ContextFollower: after the switch function the thread is the incoming one, whatever time the clock gives its record.
#include "decoder/pt/flow/context_follower.h"

#include <gtest/gtest.h>

namespace ptd::pt {
namespace {

class Follower : public testing::Test {
 protected:
  // In the order of the kernel: the outgoing thread's record before the switch function, the incoming one's after it.
  void SetUp() override {
    track_.add_switch(0, TimeNs{50}, {7, 7, SpaceId{1}});
    track_.add_switch(0, TimeNs{100}, {0, 0, kNoSpace});
    track_.add_switch(0, TimeNs{103}, {0, 0, kNoSpace});
    track_.add_switch(0, TimeNs{200}, {8, 8, SpaceId{2}});
    track_.add_switch(0, TimeNs{203}, {8, 8, SpaceId{2}});
    track_.sort();
    follower_ = ContextFollower(track_, 0);
  }
  int32_t tid_at(uint32_t& passed, uint64_t first, uint64_t last) { return follower_.at(passed, TimeNs{first}, TimeNs{last}).tid; }

  ContextTrack track_;
  ContextFollower follower_;
};

TEST_F(Follower, BehindTheSwitchFunctionRunsTheIncomingThread) {
  uint32_t passed = follower_.passed_at(TimeNs{90});
  EXPECT_EQ(tid_at(passed, 90, 99), 7);
  ++passed;  // the switch function was passed; the incoming thread's record, at 103, is later than the clock's 102
  EXPECT_EQ(tid_at(passed, 101, 102), 0);
  EXPECT_EQ(tid_at(passed, 101, 110), 0);
  EXPECT_EQ(tid_at(passed, 150, 190), 0);
  ++passed;
  EXPECT_EQ(tid_at(passed, 201, 202), 8);
  EXPECT_EQ(tid_at(passed, 250, 260), 8);
}

TEST_F(Follower, BeforeTheSwitchFunctionRunsTheOutgoingThread) {
  uint32_t passed = follower_.passed_at(TimeNs{90});
  EXPECT_EQ(tid_at(passed, 90, 150), 7) << "the interval reaches beyond the records, the flow has not passed the function";
}

TEST_F(Follower, CountingMoreThanWasRecordedIsPutRight) {
  uint32_t passed = 9;
  EXPECT_EQ(tid_at(passed, 120, 130), 0);
  EXPECT_EQ(passed, 2U);
}

TEST_F(Follower, BetweenTheTwoRecordsOfASwitchTimeAloneDoesNotTell) {
  for (uint64_t t = 99; t <= 203; ++t) {
    EXPECT_EQ(follower_.left_at(TimeNs{t}), t < 100 ? 1U : t < 200 ? 2U : 3U) << t;
    EXPECT_EQ(follower_.passed_at(TimeNs{t}), t < 103 ? 1U : t < 203 ? 2U : 3U) << t;
  }
}

TEST_F(Follower, ATraceOfThreadsStartsBeforeTheRecord) {
  EXPECT_FALSE(follower_.is_of_threads());
  EXPECT_EQ(follower_.begun_at(TimeNs{150}), 0U);
  ContextTrack track;
  track.add_switch(0, TimeNs{50}, {7, 7, SpaceId{1}});
  track.add_leave(0, TimeNs{100});
  track.add_switch(0, TimeNs{103}, {7, 7, SpaceId{1}});
  track.add_leave(0, TimeNs{200});
  track.add_switch(0, TimeNs{203}, {8, 8, SpaceId{2}});
  track.sort();
  const ContextFollower follower(track, 0);
  EXPECT_TRUE(follower.is_of_threads());
  for (uint64_t t = 99; t <= 203; ++t) {
    EXPECT_EQ(follower.begun_at(TimeNs{t}), t < 100 ? 0U : t < 200 ? 2U : 3U) << t;
    EXPECT_EQ(follower.passed_at(TimeNs{t}), t < 103 ? 1U : t < 203 ? 2U : 3U) << t;
  }
}

}  // namespace
}  // namespace ptd::pt
