// The sort buffer: FINISHED_ROUND, stability, the bound.
#include "perfio/ordering.h"

#include <algorithm>

#include "util.h"

namespace ptd::perfio {
namespace {

/// A queue that stores the offsets of the records that it delivers.
struct Fixture {
  ReadDamage damage;
  std::vector<uint64_t> order;
  RecordQueue queue;
  explicit Fixture(const ReadLimits& limits = {})
      : queue(limits, damage, [this](const RawRecord& raw) {
          order.push_back(raw.file_offset_bytes);
          return true;
        }) {}
  void add(uint64_t time, uint64_t offset) {
    RawRecord raw;
    raw.file_offset_bytes = offset;
    EXPECT_TRUE(queue.add(time, raw));
  }
};

using Offsets = std::vector<uint64_t>;

TEST(Ordering, RoundDeliversUpToThePreviousRoundsLatest) {
  Fixture f;
  f.add(4, 1);
  f.add(1, 2);
  f.add(5, 3);
  ASSERT_TRUE(f.queue.finish_round());
  EXPECT_EQ(f.order, Offsets{});  // no previous round
  f.add(6, 4);
  f.add(3, 5);
  f.add(9, 6);
  ASSERT_TRUE(f.queue.finish_round());
  EXPECT_EQ(f.order, (Offsets{2, 5, 1, 3}));  // times 1 3 4 5
  f.add(7, 7);
  ASSERT_TRUE(f.queue.finish_round());
  EXPECT_EQ(f.order, (Offsets{2, 5, 1, 3, 4, 7, 6}));
  EXPECT_EQ(f.damage.late_records, 0U);
}

TEST(Ordering, EqualTimesKeepFileOrder) {
  Fixture f;
  for (uint64_t offset = 0; offset < 40; ++offset) f.add(offset % 2 == 0 ? 7 : 3, offset);
  ASSERT_TRUE(f.queue.flush_all());
  ASSERT_EQ(f.order.size(), 40U);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(f.order[i], 2 * i + 1);
    EXPECT_EQ(f.order[20 + i], 2 * i);
  }
}

TEST(Ordering, BoundFlushesTheOlderHalfAndSaysSo) {
  ReadLimits limits;
  limits.max_queued_records = 8;
  Fixture f(limits);
  for (uint64_t i = 0; i < 8; ++i) f.add(100 - i, i);
  EXPECT_EQ(f.order, (Offsets{7, 6, 5, 4}));
  EXPECT_EQ(f.queue.size(), 4U);
  ASSERT_EQ(f.damage.messages.size(), 1U);
  f.add(1, 50);
  EXPECT_EQ(f.damage.late_records, 1U);
  ASSERT_TRUE(f.queue.flush_all());
  EXPECT_EQ(f.order, (Offsets{7, 6, 5, 4, 50, 3, 2, 1, 0}));
}

TEST(Ordering, BytesOfDecompressedRecordsAreBounded) {
  ReadLimits limits;
  limits.max_queued_bytes = 64;
  Fixture f(limits);
  std::vector<std::byte> bytes(16);
  for (uint64_t i = 0; i < 40; ++i) {
    RawRecord raw;
    raw.bytes = bytes;
    raw.transient = true;
    raw.file_offset_bytes = i;
    ASSERT_TRUE(f.queue.add(i + 1, raw));
    EXPECT_LT(f.queue.size(), 4U);
  }
}

TEST(Ordering, TransientBytesSurviveTheirSource) {
  ReadDamage damage;
  std::vector<std::string> got;
  RecordQueue queue({}, damage, [&got](const RawRecord& raw) {
    got.emplace_back(reinterpret_cast<const char*>(raw.bytes.data()), raw.bytes.size());
    return true;
  });
  for (int i = 9; i > 0; --i) {
    std::vector<std::byte> bytes = test::bytes_of("record " + std::to_string(i));
    RawRecord raw;
    raw.bytes = bytes;
    raw.transient = true;
    ASSERT_TRUE(queue.add(static_cast<uint64_t>(i), raw));
    std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
  }
  ASSERT_TRUE(queue.flush_all());
  ASSERT_EQ(got.size(), 9U);
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(got[i], "record " + std::to_string(i + 1));
}

TEST(Ordering, StopsWhenTheConsumerDoes) {
  ReadDamage damage;
  int count = 0;
  RecordQueue queue({}, damage, [&count](const RawRecord&) { return ++count < 3; });
  for (uint64_t i = 1; i <= 10; ++i) ASSERT_TRUE(queue.add(i, RawRecord{}));
  EXPECT_FALSE(queue.flush_all());
  EXPECT_EQ(count, 3);
}

}  // namespace
}  // namespace ptd::perfio
