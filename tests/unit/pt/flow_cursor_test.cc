// FlowCursor: the order of blocks, marks, events and gaps.
#include "ptdecode/flow_cursor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ptd {
namespace {

Mark mark_at(uint32_t before_block, uint64_t ns, int32_t tid = 1) {
  Mark mark;
  mark.before_block = before_block;
  mark.tid = tid;
  mark.time = {TimeNs{ns}, kTimeMax};
  mark.about = TimeNs{ns};
  mark.time_known = ns != 0;
  return mark;
}
Mark program_at(uint32_t before_block, uint64_t ns, uint32_t space) {
  Mark mark = mark_at(before_block, ns);
  mark.space = SpaceId{space};
  return mark;
}
Event event_at(uint32_t before_block, uint64_t offset_bytes, uint64_t ns, EventKind kind = EventKind::cbr) {
  Event event;
  event.kind = kind;
  event.before_block = before_block;
  event.stream_offset_bytes = offset_bytes;
  event.time = {TimeNs{ns}, kTimeMax};
  event.about = TimeNs{ns};
  return event;
}
Gap gap_at(uint32_t before_block, uint64_t offset_bytes, uint64_t ns) {
  Gap gap;
  gap.before_block = before_block;
  gap.stream_offset_bytes = offset_bytes;
  gap.time = {TimeNs{ns}, kTimeMax};
  return gap;
}

/// Returns the items of a batch in a line: "m1" is a mark of thread 1, "e8" and "g8" have offset 8, "b2" are two blocks.
std::string walk(FlowCursor& cursor, const Batch& batch) {
  std::string text;
  cursor.begin(batch);
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
    if (!text.empty()) text += ' ';
    if (item == FlowItem::blocks) text += "b" + std::to_string(cursor.blocks().size());
    if (item == FlowItem::mark) text += "m" + std::to_string(cursor.mark().tid);
    if (item == FlowItem::event) text += "e" + std::to_string(cursor.event().stream_offset_bytes);
    if (item == FlowItem::gap) text += "g" + std::to_string(cursor.gap().stream_offset_bytes);
  }
  EXPECT_EQ(FlowItem::end, cursor.next()) << "the end stays";
  return text;
}

struct Case {
  const char* why;
  std::string want;
  Batch batch;
};

Batch batch_of(size_t blocks, std::vector<Mark> marks, std::vector<Event> events, std::vector<Gap> gaps) {
  Batch batch;
  batch.blocks.resize(blocks, Block{});
  batch.marks = std::move(marks);
  batch.events = std::move(events);
  batch.gaps = std::move(gaps);
  return batch;
}

TEST(FlowCursor, Order) {
  const Case cases[] = {
      {"nothing", "", batch_of(0, {}, {}, {})},
      {"blocks alone", "b3", batch_of(3, {}, {}, {})},
      {"each between its blocks", "m1 b1 e8 b1 g9 b1", batch_of(3, {mark_at(0, 5)}, {event_at(1, 8, 6)}, {gap_at(2, 9, 7)})},
      {"after the last block", "b2 e8 g9", batch_of(2, {}, {event_at(2, 8, 6)}, {gap_at(2, 9, 7)})},
      {"events and gaps by offset", "e8 g9 e10 b1", batch_of(1, {}, {event_at(0, 8, 6), event_at(0, 10, 6)}, {gap_at(0, 9, 6)})},
      {"a gap before an event of its packet", "g8 e8 b1", batch_of(1, {}, {event_at(0, 8, 6)}, {gap_at(0, 8, 6)})},
      {"a mark before an event of the same time", "m1 e8 b1", batch_of(1, {mark_at(0, 6)}, {event_at(0, 8, 6)}, {})},
      {"a later mark after the event", "e8 m1 b1", batch_of(1, {mark_at(0, 7)}, {event_at(0, 8, 6)}, {})},
      {"an earlier mark before it", "m1 e8 m1 b1", batch_of(1, {mark_at(0, 5), mark_at(0, 7)}, {event_at(0, 8, 6)}, {})},
      {"without times the mark comes first", "m1 e8 b1", batch_of(1, {mark_at(0, 0)}, {event_at(0, 8, 0)}, {})},
      {"a gap before the mark of what follows", "g8 m1 b1", batch_of(1, {mark_at(0, 7)}, {}, {gap_at(0, 8, 6)})},
      {"a gap before a mark of the same time", "g8 m1 b1", batch_of(1, {mark_at(0, 6)}, {}, {gap_at(0, 8, 6)})},
      {"a gap after an earlier mark", "m1 g8 b1", batch_of(1, {mark_at(0, 5)}, {}, {gap_at(0, 8, 6)})},
      {"a gap before a mark without a time", "g8 m1 b1", batch_of(1, {mark_at(0, 0)}, {}, {gap_at(0, 8, 0)})},
      {"what ends a thread's flow comes before the next thread", "m1 b1 e8 m2 e9 b1",
       batch_of(2, {mark_at(0, 5), mark_at(1, 5, 2)}, {event_at(1, 8, 7, EventKind::disabled), event_at(1, 9, 7)}, {})},
      {"what begins a thread's flow comes after its mark", "m1 b1 m2 e8 b1",
       batch_of(2, {mark_at(0, 5), mark_at(1, 9, 2)}, {event_at(1, 8, 7, EventKind::enabled)}, {})},
      {"and so does what comes before that", "m1 b1 e7 e8 m2 e9 b1",
       batch_of(2, {mark_at(0, 5), mark_at(1, 5, 2)},
                {event_at(1, 7, 7, EventKind::paging), event_at(1, 8, 7, EventKind::disabled), event_at(1, 9, 7, EventKind::enabled)}, {})},
      {"a thread without blocks", "m1 b1 e7 m2 e7 g8 e9 m1 e10 b1",
       batch_of(2, {mark_at(0, 5), mark_at(1, 7, 2), mark_at(1, 7)},
                {event_at(1, 7, 7, EventKind::disabled), event_at(1, 7, 7, EventKind::enabled),
                 event_at(1, 9, 7, EventKind::async_disabled), event_at(1, 10, 7, EventKind::enabled)},
                {gap_at(1, 8, 7)})},
      {"after a gap, also if its flow ends before its first block", "m1 b1 g7 m2 e8 e9 e10 b1",
       batch_of(
           2, {mark_at(0, 5), mark_at(1, 8, 2)},
           {event_at(1, 8, 9, EventKind::enabled), event_at(1, 9, 9, EventKind::async_disabled), event_at(1, 10, 9, EventKind::enabled)},
           {gap_at(1, 7, 6)})},
      {"likewise an exception whose handler is not traced", "m1 b1 e8 m2 b1",
       batch_of(2, {mark_at(0, 0), mark_at(1, 0, 2)}, {event_at(1, 8, 0, EventKind::async_branch)}, {})},
      {"and what comes before exec, without times", "m1 b1 e8 m1 b1",
       batch_of(2, {program_at(0, 0, 1), program_at(1, 0, 2)}, {event_at(1, 8, 0, EventKind::async_branch)}, {})},
      {"unless it is the same program", "m1 b1 m1 e8 b1",
       batch_of(2, {program_at(0, 0, 1), program_at(1, 0, 1)}, {event_at(1, 8, 0, EventKind::async_branch)}, {})},
      {"unless it is the same thread", "m1 b1 m1 e8 b1",
       batch_of(2, {mark_at(0, 5), mark_at(1, 6)}, {event_at(1, 8, 7, EventKind::async_disabled)}, {})},
  };
  for (const Case& test : cases) {
    FlowCursor cursor;
    EXPECT_EQ(test.want, walk(cursor, test.batch)) << test.why;
  }
}

TEST(FlowCursor, ContextAndTimeCarryOver) {
  FlowCursor cursor;
  EXPECT_EQ(-1, cursor.context().tid);
  EXPECT_EQ(kTimeMin, cursor.now());
  EXPECT_EQ("m7 b1", walk(cursor, batch_of(1, {mark_at(0, 50, 7)}, {}, {})));
  const Batch next = batch_of(2, {}, {event_at(1, 8, 60), event_at(1, 9, 55)}, {});
  cursor.begin(next);
  ASSERT_EQ(FlowItem::blocks, cursor.next());
  EXPECT_EQ(7, cursor.context().tid);
  EXPECT_EQ(TimeNs{50}, cursor.now());
  EXPECT_EQ(0U, cursor.position());
  ASSERT_EQ(FlowItem::event, cursor.next());
  EXPECT_EQ(TimeNs{60}, cursor.now());
  EXPECT_EQ(1U, cursor.position());
  ASSERT_EQ(FlowItem::event, cursor.next());
  EXPECT_EQ(TimeNs{60}, cursor.now()) << "never goes back";
  cursor.reset();
  EXPECT_EQ(-1, cursor.context().tid);
  EXPECT_EQ(kTimeMin, cursor.now());
}

TEST(FlowCursor, MarksOfOneThreadArePassedUpToTheLastThatAdvancesTime) {
  struct {
    const char* why;
    std::vector<Mark> marks;
    std::vector<Event> events;
    size_t passed_blocks;
    uint32_t position;
  } const kCases[] = {
      {"nothing follows", {mark_at(0, 10)}, {}, 0, 0},
      {"two follow", {mark_at(0, 10), mark_at(2, 20), mark_at(5, 30)}, {}, 5, 5},
      {"the last has the time of the one before", {mark_at(0, 10), mark_at(2, 20), mark_at(5, 20)}, {}, 2, 2},
      {"an equal time in between", {mark_at(0, 10), mark_at(2, 10), mark_at(5, 20)}, {}, 5, 5},
      {"time goes back", {mark_at(0, 10), mark_at(2, 20), mark_at(5, 15), mark_at(6, 30)}, {}, 2, 2},
      {"no blocks in between", {mark_at(0, 10), mark_at(2, 20), mark_at(2, 30)}, {}, 2, 2},
      {"another thread", {mark_at(0, 10), mark_at(2, 20), mark_at(5, 30, 2)}, {}, 2, 2},
      {"an event", {mark_at(0, 10), mark_at(2, 20), mark_at(5, 30)}, {event_at(5, 8, 30)}, 2, 2},
  };
  for (const auto& each : kCases) {
    FlowCursor cursor;
    const Batch batch = batch_of(8, each.marks, each.events, {});
    cursor.begin(batch);
    ASSERT_EQ(cursor.next(), FlowItem::mark);
    EXPECT_EQ(cursor.pass_marks().size(), each.passed_blocks) << each.why;
    EXPECT_EQ(cursor.position(), each.position) << each.why;
    EXPECT_EQ(cursor.mark().before_block, each.position) << each.why;
    EXPECT_EQ(cursor.now(), cursor.mark().about) << each.why;
    EXPECT_EQ(cursor.next(),
              each.position == 2 && each.marks.size() > 2 && each.marks[2].before_block == 2 ? FlowItem::mark : FlowItem::blocks)
        << each.why;
  }
}

}  // namespace
}  // namespace ptd
