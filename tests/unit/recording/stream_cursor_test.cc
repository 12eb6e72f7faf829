// StreamCursor: returns the output of Recording::decode(), merged.
#include "ptdecode/stream_cursor.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ptd {
namespace {

/// The content of a stream, each kind in its own list.
struct Sums {
  std::vector<uint64_t> blocks, marks, events, gaps;
  bool operator==(const Sums&) const = default;
  void add(const Block& block, const BlockTable& table) {
    const BlockInfo& info = table.info(block.node);
    blocks.insert(blocks.end(), {info.ip.value, info.space.value, block.instructions, block.flags});
  }
  void add(const Mark& mark) { marks.insert(marks.end(), {mark.time.first.value, static_cast<uint64_t>(mark.tid), mark.space.value}); }
  void add(const Event& event) {
    events.insert(events.end(), {static_cast<uint64_t>(event.kind), event.flags, event.stream_offset_bytes, event.payload});
  }
  void add(const Gap& gap) { gaps.insert(gaps.end(), {static_cast<uint64_t>(gap.reason), gap.stream_offset_bytes, gap.ip.value}); }
};

std::unique_ptr<Recording> open_named(const std::string& name) {
  OpenOptions options;
  options.path = std::string(PTD_SOURCE_DIR) + "/data/" + name;
  auto opened = Recording::open(options);
  EXPECT_TRUE(opened.ok());
  return opened.ok() ? std::move(opened).value() : nullptr;
}

Sums pulled(const Recording& recording, uint32_t stream, Interval time = {}) {
  Sums sums;
  StreamCursor cursor(recording, stream, time);
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
    if (item == FlowItem::mark) sums.add(cursor.mark());
    if (item == FlowItem::event) sums.add(cursor.event());
    if (item == FlowItem::gap) sums.add(cursor.gap());
    if (item != FlowItem::blocks) continue;
    for (const Block& block : cursor.blocks()) sums.add(block, cursor.table());
  }
  EXPECT_EQ(FlowItem::end, cursor.next());
  return sums;
}

Sums pushed(const Recording& recording, uint32_t stream, uint64_t first, uint64_t end) {
  Sums sums;
  const Status status = recording.decode(stream, first, end, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
    for (const Block& block : batch.blocks) sums.add(block, decoder.blocks());
    for (const Mark& mark : batch.marks) sums.add(mark);
    for (const Event& event : batch.events) sums.add(event);
    for (const Gap& gap : batch.gaps) sums.add(gap);
    return true;
  });
  EXPECT_TRUE(status.ok());
  return sums;
}

TEST(StreamCursor, GivesTheWholeStream) {
  for (const char* name : {"demo", "user/pair.bundle", "user/patch.bundle", "arm/threads.bundle"}) {
    const auto recording = open_named(name);
    ASSERT_NE(nullptr, recording);
    for (uint32_t stream = 0; stream < recording->streams().size(); ++stream) {
      const Sums sums = pulled(*recording, stream);
      EXPECT_FALSE(sums.blocks.empty()) << name;
      EXPECT_EQ(pushed(*recording, stream, 0, Recording::kStreamEnd), sums) << name << ", stream " << stream;
    }
  }
}

TEST(StreamCursor, BeginsAtATime) {
  const auto recording = open_named("demo");
  ASSERT_NE(nullptr, recording);
  const Interval whole = recording->streams()[0].time;
  ASSERT_LT(whole.first, whole.last);
  const TimeNs middle{whole.first.value + (whole.last.value - whole.first.value) / 2};
  const uint64_t at = recording->segment_at(0, middle);
  ASSERT_GT(at, 0U);
  EXPECT_EQ(pushed(*recording, 0, at, Recording::kStreamEnd), pulled(*recording, 0, {middle, kTimeMax}));
  EXPECT_TRUE(pulled(*recording, 0, {kTimeMin, kTimeMin}).blocks.empty());
}

TEST(StreamCursor, AbsentStreamHasNoItems) {
  const auto recording = open_named("demo");
  ASSERT_NE(nullptr, recording);
  EXPECT_EQ(Sums{}, pulled(*recording, 99));
}

}  // namespace
}  // namespace ptd
