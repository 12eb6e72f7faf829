// LossTimes: whose flow was lost, and for how long, from hand-made batches.
#include "analysis/loss_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>

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

/// A batch of items that occur in traces: marks with equal, unknown and earlier times, several threads, stops and gaps.
Batch random_batch(std::mt19937& random, uint64_t& time, int32_t& tid) {
  Batch batch;
  for (int items = 0; items < 40; ++items) {
    if (random() % 8 != 0) {
      for (auto count = 1 + random() % 3; count > 0; --count) batch.blocks.push_back({0, static_cast<uint16_t>(1 + random() % 50), 0});
    }
    const auto before = static_cast<uint32_t>(batch.blocks.size());
    time += random() % 3 == 0 ? 0 : random() % 40;
    if (random() % 16 == 0) tid = static_cast<int32_t>(1 + random() % 3);
    if (random() % 24 == 0) batch.events.push_back(event(before, time, random() % 2 == 0 ? EventKind::disabled : EventKind::enabled));
    if (random() % 32 == 0) batch.gaps.push_back(gap(before, time, GapReason::overflow));
    batch.marks.push_back(mark(before, random() % 20 == 0 ? time - std::min<uint64_t>(time, random() % 30) : time, tid));
    if (random() % 20 == 0) batch.marks.back().time = {kTimeMin, kTimeMax};
  }
  return batch;
}

/// The same items, with an event that says nothing at each mark: no two marks follow each other without an event.
Batch with_events_between(const Batch& batch) {
  Batch other = batch;
  for (const Mark& each : batch.marks) {
    Event nothing = event(each.before_block, 0, EventKind::cbr);
    nothing.time = {kTimeMin, kTimeMax};
    other.events.push_back(nothing);
  }
  std::stable_sort(other.events.begin(), other.events.end(),
                   [](const Event& a, const Event& b) { return a.before_block < b.before_block; });
  return other;
}

TEST(LossTimes, MarksOfASteadyFlowCountAlsoIfTheyArePassedAtOnce) {
  const ContextTrack contexts;
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    constexpr Interval kLong{TimeNs{1000}, TimeNs{30000}};
    LossTimes at_once(contexts, 0, -1, kLong), singly(contexts, 0, -1, kLong);
    uint64_t time = 1000;
    int32_t tid = 1;
    for (int batches = 0; batches < 20; ++batches) {
      const Batch batch = random_batch(random, time, tid);
      at_once.take(batch);
      singly.take(with_events_between(batch));
    }
    at_once.finish(TimeNs{time});
    singly.finish(TimeNs{time});
    ASSERT_EQ(at_once.threads().size(), singly.threads().size());
    for (const auto& [key, loss] : at_once.threads()) {
      const ThreadLoss& other = singly.threads().at(key);
      ASSERT_EQ(loss.traced_ns, other.traced_ns) << round << " thread " << key.second;
      ASSERT_EQ(loss.lost_ns, other.lost_ns) << round << " thread " << key.second;
      ASSERT_EQ(loss.gaps, other.gaps);
    }
    for (size_t bin = 0; bin < LossTimes::kBins; ++bin) ASSERT_EQ(at_once.bins()[bin].traced_ns, singly.bins()[bin].traced_ns) << round;
  }
}

// Each loss needs only the runs that it overlaps. All runs for each loss take minutes.
TEST(LossTimes, ManyLossesOfAThreadThatSwitchesOften) {
  constexpr uint64_t kRuns = 200'000, kNs = 100;  // the thread has the first half of each
  ContextTrack contexts;
  for (uint64_t i = 0; i < kRuns; ++i) {
    contexts.add_switch(0, TimeNs{kNs * i}, {7, 7, kNoSpace});
    contexts.add_switch(0, TimeNs{kNs * i + kNs / 2}, {0, 0, kNoSpace});
  }
  contexts.sort();
  LossTimes losses(contexts, -1, 7, {});
  const std::clock_t start = std::clock();
  for (uint64_t i = 0; i < kRuns; ++i) {
    Batch next = batch(1);
    next.marks = {mark(0, kNs * i + 10, 7)};
    next.gaps = {gap(1, kNs * i + 20, GapReason::overflow)};
    losses.take(next);
  }
  losses.finish(TimeNs{kNs * kRuns});
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
  EXPECT_EQ(losses.threads().at({7, 7}).lost_ns, kRuns * 40 - 10);
}

}  // namespace
}  // namespace ptd
