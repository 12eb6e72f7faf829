// ThreadSchedule: what context switches, and the starts of threads without them, say of the time off the cpu. CallTree: which threads there
// are.
#include "analysis/thread_schedule.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "analysis/call_flow.h"
#include "ptdecode/call_tree.h"

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

// A recording may contain any number as a thread or cpu.
TEST(CallTreeThreads, AnyNumberIsAThread) {
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();
  CallTree tree(nullptr);
  std::vector<CallStep> out;
  for (const int round : {0, 1}) {
    for (const int32_t tid : {kLeast, kLeast + 1, -3, -2, -1, 0, 1, kMost}) {
      for (const int32_t cpu : {kLeast, -1, 0, kMost}) {
        tree.take({.kind = FlowKind::begin,
                   .tid = tid,
                   .cpu = cpu,
                   .function = FunctionId{0},
                   .time = TimeNs{10U + static_cast<uint64_t>(round)}},
                  out);
      }
    }
  }
  EXPECT_EQ(tree.threads().size(), 6U * 4 + 2);  // without a thread, or in the idle task: one per cpu
}

}  // namespace
}  // namespace ptd
