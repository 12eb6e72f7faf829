// ThreadSchedule: what context switches, and the starts of threads without them, say of the time off the cpu.
#include "analysis/thread_schedule.h"

#include <gtest/gtest.h>

namespace ptd {
namespace {

TEST(ThreadSchedule, SwitchesTellTheTimeOffTheCpu) {
  ContextTrack contexts;
  contexts.add_switch(0, TimeNs{100}, {7, 7, kNoSpace});
  contexts.add_switch(0, TimeNs{200}, {8, 8, kNoSpace});
  contexts.add_switch(0, TimeNs{260}, {7, 7, kNoSpace});
  contexts.sort();
  const ThreadSchedule schedule(contexts);
  EXPECT_EQ(schedule.off_ns(7, TimeNs{150}, TimeNs{300}), 60U);
  EXPECT_EQ(schedule.runs(7).size(), 2U);
}

TEST(ThreadSchedule, AnIdleCpuIsASwitch) {
  ContextTrack contexts;
  contexts.add_switch(0, TimeNs{100}, {7, 7, kNoSpace});
  contexts.add_switch(0, TimeNs{200}, {0, 0, kNoSpace});
  contexts.sort();
  EXPECT_EQ(ThreadSchedule(contexts).off_ns(7, TimeNs{150}, TimeNs{300}), 100U);
}

// A recording without switches names each thread where its trace starts, and nothing where one leaves the cpu. Exec starts one again.
TEST(ThreadSchedule, StartsOfThreadsTellNoTimeOffTheCpu) {
  ContextTrack contexts;
  contexts.add_switch(0, TimeNs{100}, {7, 7, SpaceId{1}});
  contexts.add_switch(0, TimeNs{120}, {7, 7, SpaceId{2}});
  contexts.add_switch(0, TimeNs{200}, {7, 8, SpaceId{2}});
  contexts.add_switch(1, TimeNs{250}, {7, 8, SpaceId{2}});
  contexts.sort();
  const ThreadSchedule schedule(contexts);
  EXPECT_EQ(schedule.off_ns(7, TimeNs{150}, TimeNs{300}), 0U);
  EXPECT_FALSE(schedule.off_span(7, TimeNs{150}, TimeNs{300}).has_value());
  EXPECT_TRUE(schedule.runs(7).empty());
}

}  // namespace
}  // namespace ptd
