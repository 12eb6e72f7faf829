// LossTimes: whose flow was lost, and for how long, from hand-made batches.
#include "analysis/loss_times.h"

#include <gtest/gtest.h>

namespace ptd {
namespace {

Mark mark(uint32_t before, uint64_t time, int32_t tid) {
  Mark mark;
  mark.before_block = before;
  mark.time = {TimeNs{time}, TimeNs{time}};
  mark.time_known = true;
  mark.pid = mark.tid = tid;
  return mark;
}

Gap gap(uint32_t before, uint64_t time, GapReason reason) {
  Gap gap;
  gap.before_block = before;
  gap.time = {TimeNs{time}, TimeNs{time}};
  gap.reason = reason;
  return gap;
}

Event event(uint32_t before, uint64_t time, EventKind kind) {
  Event event;
  event.before_block = before;
  event.time = {TimeNs{time}, TimeNs{time}};
  event.kind = kind;
  return event;
}

Batch batch(size_t blocks) {
  Batch batch;
  batch.blocks.assign(blocks, Block{0, 10, 0});
  return batch;
}

constexpr Interval kSpan{TimeNs{1000}, TimeNs{1600}};  // bins of 11 ns

TEST(LossTimes, ALossGoesFromTheGapToTheNextBlockThatRan) {
  const ContextTrack contexts;
  LossTimes losses(contexts, -1, 7, kSpan);
  Batch first = batch(2);
  first.marks = {mark(0, 1000, 7), mark(1, 1100, 7)};
  first.gaps = {gap(2, 1150, GapReason::overflow), gap(2, 1200, GapReason::no_image)};
  losses.take(first);
  Batch second = batch(1);
  second.marks = {mark(0, 1300, 7), mark(1, 1400, 7)};
  losses.take(second);
  losses.finish(TimeNs{1500});
  ASSERT_EQ(losses.threads().size(), 1U);
  const ThreadLoss& thread = losses.threads().at({7, 7});
  EXPECT_EQ(thread.traced_ns, 150U + 200U);
  EXPECT_EQ(thread.lost_ns, 150U);
  EXPECT_EQ(thread.lost_by_reason_ns[static_cast<size_t>(GapReason::overflow)], 150U);  // the reason that started it
  EXPECT_EQ(thread.gaps[static_cast<size_t>(GapReason::overflow)], 1U);
  EXPECT_EQ(thread.gaps[static_cast<size_t>(GapReason::no_image)], 1U);
  uint64_t lost = 0, traced = 0;
  for (const LossTimes::Bin& bin : losses.bins()) lost += bin.lost_ns, traced += bin.traced_ns;
  EXPECT_EQ(lost, 150U);
  EXPECT_EQ(traced, 350U);
  EXPECT_EQ(losses.bins()[(1200 - 1000) / 11].lost_ns, 11U);
  EXPECT_EQ(losses.bins()[(1050 - 1000) / 11].traced_ns, 11U);
}

TEST(LossTimes, TimeWithoutTracingIsInNeither) {
  const ContextTrack contexts;
  LossTimes losses(contexts, -1, 7, kSpan);
  Batch one = batch(2);
  one.marks = {mark(0, 1000, 7), mark(2, 1500, 7)};
  one.events = {event(1, 1100, EventKind::disabled), event(1, 1400, EventKind::enabled)};
  losses.take(one);
  EXPECT_EQ(losses.threads().at({7, 7}).traced_ns, 200U);
  EXPECT_EQ(losses.threads().at({7, 7}).lost_ns, 0U);
}

TEST(LossTimes, OnACpuTheSwitchesTellWhoseLossItIs) {
  ContextTrack contexts;
  contexts.add_switch(3, TimeNs{900}, {7, 7, SpaceId{1}});
  contexts.add_switch(3, TimeNs{1200}, {0, 0, kNoSpace});
  contexts.add_switch(3, TimeNs{1260}, {8, 8, SpaceId{2}});
  contexts.sort();
  LossTimes losses(contexts, 3, -1, kSpan);
  Batch one = batch(2);
  one.marks = {mark(0, 1000, 7), mark(1, 1300, 8), mark(2, 1310, 8)};
  one.gaps = {gap(1, 1100, GapReason::aux_lost)};
  losses.take(one);
  EXPECT_EQ(losses.threads().at({7, 7}).traced_ns, 100U);
  EXPECT_EQ(losses.threads().at({7, 7}).lost_ns, 100U);
  EXPECT_EQ(losses.threads().at({0, 0}).lost_ns, 60U);
  EXPECT_EQ(losses.threads().at({8, 8}).lost_ns, 40U);
  EXPECT_EQ(losses.threads().at({8, 8}).traced_ns, 10U);
}

TEST(LossTimes, OfAThreadsOwnStreamOnlyTimeOnACpuIsLost) {
  ContextTrack contexts;
  contexts.add_switch(0, TimeNs{900}, {7, 7, SpaceId{1}});
  contexts.add_switch(0, TimeNs{1120}, {0, 0, kNoSpace});
  contexts.add_switch(1, TimeNs{1180}, {7, 7, SpaceId{1}});
  contexts.sort();
  LossTimes losses(contexts, -1, 7, kSpan);
  Batch one = batch(2);
  one.marks = {mark(0, 1000, 7), mark(1, 1200, 7)};
  one.gaps = {gap(1, 1100, GapReason::overflow)};
  losses.take(one);
  losses.finish(TimeNs{1200});
  EXPECT_EQ(losses.threads().at({7, 7}).lost_ns, 40U);
}

TEST(LossTimes, WhatIsLostAtTheEndIsSoUpToIt) {
  const ContextTrack contexts;
  LossTimes losses(contexts, -1, 7, kSpan);
  Batch one = batch(1);
  one.marks = {mark(0, 1000, 7)};
  one.gaps = {gap(1, 1400, GapReason::no_image)};
  losses.take(one);
  losses.finish(TimeNs{1600});
  EXPECT_EQ(losses.threads().at({7, 7}).lost_ns, 200U);
}

}  // namespace
}  // namespace ptd
