// RecordingCursor: returns the items of the StreamCursors of its streams, in order of time.
#include "ptdecode/recording_cursor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace ptd {
namespace {

std::unique_ptr<Recording> open_data(const std::string& name) {
  OpenOptions options;
  options.path = std::string(PTD_SOURCE_DIR) + "/data/" + name;
  auto opened = Recording::open(options);
  EXPECT_TRUE(opened.ok());
  return opened.ok() ? std::move(opened).value() : nullptr;
}

using Item = std::array<uint64_t, 4>;
using Items = std::vector<Item>;

void add(Items& items, FlowItem item, const StreamCursor& cursor) {
  const uint64_t kind = static_cast<uint64_t>(item), now = cursor.now().value;
  switch (item) {
    case FlowItem::blocks:
      for (const Block& block : cursor.blocks()) items.push_back({kind, now, cursor.table().info(block.node).ip.value, block.flags});
      return;
    case FlowItem::mark:
      return items.push_back({kind, now, static_cast<uint64_t>(cursor.mark().tid), cursor.mark().space.value});
    case FlowItem::event:
      return items.push_back({kind, now, static_cast<uint64_t>(cursor.event().kind), cursor.event().stream_offset_bytes});
    case FlowItem::gap:
      return items.push_back({kind, now, static_cast<uint64_t>(cursor.gap().reason), cursor.gap().stream_offset_bytes});
    case FlowItem::end:
      return;
  }
}

Items of_stream(const Recording& recording, uint32_t stream, Interval time = {}) {
  Items items;
  StreamCursor cursor(recording, stream, time);
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) add(items, item, cursor);
  return items;
}

void expect_merged(const Recording& recording, std::span<const uint32_t> streams, Interval time, const std::string& name) {
  std::vector<Items> items(recording.streams().size());
  RecordingCursor cursor(recording, streams, time);
  TimeNs before{};
  size_t changes = 0;
  uint32_t last = 0;
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
    ASSERT_LE(before, cursor.item().now()) << name;
    before = cursor.item().now();
    changes += cursor.stream() != last ? 1 : 0;
    last = cursor.stream();
    add(items[cursor.stream()], item, cursor.item());
  }
  EXPECT_EQ(FlowItem::end, cursor.next());
  for (uint32_t stream = 0; stream < items.size(); ++stream) {
    const bool wanted = streams.empty() || std::find(streams.begin(), streams.end(), stream) != streams.end();
    EXPECT_EQ(wanted ? of_stream(recording, stream, time) : Items(), items[stream]) << name << ", stream " << stream;
  }
  if (name == "demo") {  // its cpus run at the same time
    EXPECT_LT(items.size(), changes) << name << ": the streams are given one after the other";
  }
}

TEST(RecordingCursor, GivesEveryStreamInOrderOfTime) {
  for (const char* name : {"demo", "user/pair.bundle", "user/plain.bundle", "arm/threads.bundle"}) {
    const auto recording = open_data(name);
    ASSERT_NE(nullptr, recording);
    expect_merged(*recording, {}, {}, name);
  }
}

TEST(RecordingCursor, TakesSomeStreamsAndAWindow) {
  const auto recording = open_data("demo");
  ASSERT_NE(nullptr, recording);
  ASSERT_LE(2U, recording->streams().size());
  const Interval whole = hull(recording->streams()[0].time, recording->streams()[1].time);
  const TimeNs middle{whole.first.value + (whole.last.value - whole.first.value) / 2};
  const std::array<uint32_t, 1> second{1};
  expect_merged(*recording, second, {}, "one stream");
  expect_merged(*recording, {}, {middle, kTimeMax}, "second half");
  expect_merged(*recording, {}, {kTimeMin, middle}, "first half");
  const std::array<uint32_t, 1> absent{99};
  RecordingCursor cursor(*recording, absent);
  EXPECT_EQ(FlowItem::end, cursor.next());
}

TEST(RecordingCursor, TellsOnceOfEachStreamThatHasEnded) {
  for (const char* name : {"demo", "arm/threads.bundle"}) {
    const auto recording = open_data(name);
    ASSERT_NE(nullptr, recording);
    RecordingCursor cursor(*recording);
    cursor.free_ended();
    std::vector<uint32_t> ended;
    for (bool more = true; more;) {
      more = cursor.next() != FlowItem::end;
      ended.insert(ended.end(), cursor.ended().begin(), cursor.ended().end());
      if (!more) break;
      EXPECT_EQ(ended.end(), std::find(ended.begin(), ended.end(), cursor.stream())) << "an item of a stream that has ended";
      EXPECT_NE(0U, cursor.item().table().size()) << name;
    }
    EXPECT_EQ(FlowItem::end, cursor.next());
    std::sort(ended.begin(), ended.end());
    std::vector<uint32_t> all(recording->streams().size());
    std::iota(all.begin(), all.end(), 0U);
    EXPECT_EQ(all, ended) << name;
  }
}

TEST(RecordingCursor, KeepsTheTablesOfStreamsThatHaveEnded) {
  const auto recording = open_data("arm/threads.bundle");
  ASSERT_NE(nullptr, recording);
  RecordingCursor cursor(*recording);
  std::vector<std::pair<Bytes, std::vector<std::byte>>> kept;  // views of the code, and copies
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
    if (item != FlowItem::blocks) continue;
    const Bytes code = cursor.item().table().bytes(cursor.item().blocks().front().node);
    kept.emplace_back(code, std::vector<std::byte>(code.begin(), code.end()));
  }
  EXPECT_LT(100U, kept.size());
  for (const auto& [view, copy] : kept) ASSERT_TRUE(std::equal(view.begin(), view.end(), copy.begin(), copy.end()));
}

TEST(StreamCursor, IsEmptyWhenReleased) {
  const auto recording = open_data("demo");
  ASSERT_NE(nullptr, recording);
  StreamCursor cursor(*recording, 0);
  while (cursor.next() != FlowItem::end) {
  }
  EXPECT_NE(0U, cursor.table().size());
  const uint64_t bytes = cursor.decoded_bytes();
  cursor.release();
  EXPECT_EQ(0U, cursor.table().size());
  EXPECT_EQ(FlowItem::end, cursor.next());
  EXPECT_EQ(bytes, cursor.decoded_bytes());
}

TEST(RecordingCursor, EndsWhenTheCheckSaysSo) {
  const auto recording = open_data("demo");
  ASSERT_NE(nullptr, recording);
  RecordingCursor cursor(*recording);
  uint64_t checks = 0, items = 0;
  cursor.set_check([&] { return ++checks <= recording->streams().size(); });
  while (cursor.next() != FlowItem::end) ++items;
  uint64_t all = 0;
  RecordingCursor whole(*recording);
  while (whole.next() != FlowItem::end) ++all;
  EXPECT_LT(0U, items);
  EXPECT_LT(items, all);
  uint64_t bytes = 0;
  for (const StreamInfo& stream : recording->streams()) bytes += stream.size_bytes;
  EXPECT_LT(bytes / 2, whole.decoded_bytes());
  EXPECT_LE(whole.decoded_bytes(), bytes);
}

// A source that counts its comparisons.
struct Counted {
  std::vector<uint64_t> times;
  size_t* asked = nullptr;
  size_t at = 0;
  bool advance() { return ++at <= times.size(); }
  [[nodiscard]] TimeNs time() const {
    ++*asked;
    return TimeNs{times[at - 1]};
  }
};

TEST(TimeMerge, AsksOneSourceNothing) {
  size_t asked = 0;
  TimeMerge<Counted> merge;
  merge.add({{1, 2, 3, 4, 5}, &asked});
  size_t items = 0;
  while (merge.next() != nullptr) ++items;
  EXPECT_EQ(5U, items);
  EXPECT_EQ(0U, asked);
}

TEST(TimeMerge, StartsASourceWhenItsTimeComes) {
  size_t asked = 0;
  TimeMerge<Counted> merge;
  merge.add({{5, 6}, &asked}, TimeNs{4});
  merge.add({{1, 5, 9}, &asked});
  merge.add({{}, &asked}, TimeNs{7});
  merge.add({{9, 10}, &asked}, TimeNs{9});
  std::string told;
  while (const Counted* source = merge.next()) {
    told += std::to_string(source->time().value) + ":";
    for (const Counted& each : merge.sources()) told += each.at != 0 ? '+' : '-';
    for (const uint32_t ended : merge.ended()) told += std::to_string(ended);
    told += ' ';
  }
  // A source may be started as early as the time before its first item, and ends with the call that finds no further item.
  EXPECT_EQ("1:-+-- 5:++-- 5:++-- 6:++-- 9:+++-02 9:++++1 10:++++ ", told);
  EXPECT_EQ(std::vector<uint32_t>{3}, merge.ended());
}

TEST(TimeMerge, OrdersByTimeThenBySource) {
  size_t asked = 0;
  TimeMerge<Counted> merge;
  merge.add({{1, 4, 4}, &asked});
  merge.add({{}, &asked});
  merge.add({{1, 2, 9}, &asked});
  merge.add({{0, 4}, &asked});
  std::vector<uint64_t> times;
  std::string sources;
  while (const Counted* source = merge.next()) {
    times.push_back(source->time().value);
    sources += std::to_string(source - merge.sources().data());
  }
  EXPECT_EQ((std::vector<uint64_t>{0, 1, 1, 2, 4, 4, 4, 9}), times);
  EXPECT_EQ("30220032", sources);
}

}  // namespace
}  // namespace ptd
