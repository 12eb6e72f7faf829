// AUX areas and data rings, tested with a writer that implements the kernel's side of [perf_event.h] "struct perf_event_mmap_page": wrap,
// overwrite, loss. Also with two threads at once, for ThreadSanitizer.
#include "perfio/ring/aux_ring.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace ptd::perfio {
namespace {

constexpr size_t kPage = 4096;

/// Returns byte `offset` of a stream that never repeats within a ring.
std::byte stream_byte(uint64_t offset) { return static_cast<std::byte>((offset * 0x9e3779b97f4a7c15ULL) >> 56 | 1); }

/// The kernel's side of an AUX area.
struct FakeAux {
  std::vector<std::byte> control = std::vector<std::byte>(kPage);
  std::vector<std::byte> area = std::vector<std::byte>(kPage);
  perf_event_mmap_page& page() { return *reinterpret_cast<perf_event_mmap_page*>(control.data()); }
  std::unique_ptr<AuxRing> ring(AuxMode mode) {
    Result<std::unique_ptr<AuxRing>> made = AuxRing::over(control, area, mode);
    return made.ok() ? std::move(*made) : nullptr;
  }
  void put(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i, ++written) area[written % area.size()] = stream_byte(written);
  }
  uint64_t written = 0;
};

void expect_stream(const RingPart& part) {
  ASSERT_EQ(part.first.size() + part.second.size(), part.size_bytes());
  for (uint64_t i = 0; i < part.size_bytes(); ++i) {
    const std::byte got = i < part.first.size() ? part.first[i] : part.second[i - part.first.size()];
    ASSERT_EQ(got, stream_byte(part.begin + i)) << "at " << part.begin + i;
  }
}

TEST(AuxRing, GivesTheStreamAlsoAcrossTheEnd) {
  FakeAux fake;
  const auto ring = fake.ring(AuxMode::full);
  ASSERT_NE(ring, nullptr);
  EXPECT_EQ(ring->pending().size_bytes(), 0U);
  uint64_t want = 0;
  for (const uint64_t size : {uint64_t{4000}, uint64_t{200}, uint64_t{4096}, uint64_t{1}}) {
    fake.put(size);
    fake.page().aux_head = fake.written;
    const RingPart part = ring->pending();
    EXPECT_EQ(part.begin, want);
    EXPECT_EQ(part.size_bytes(), size);
    EXPECT_EQ(part.lost_bytes, 0U);
    expect_stream(part);
    ring->read_to(part.end);
    EXPECT_EQ(fake.page().aux_tail, want) << "given back before it was asked to";
    ring->release();
    want += size;
    EXPECT_EQ(fake.page().aux_tail, want);
  }
}

TEST(AuxRing, SaysWhenTheWriterMayHaveFoundNoRoom) {
  FakeAux fake;
  fake.area.resize(4 * kPage);
  const auto ring = fake.ring(AuxMode::full);
  const auto round = [&](uint64_t before, uint64_t between) {  // bytes before the reader starts, and while it reads
    fake.put(before);
    fake.page().aux_head = fake.written;
    ring->read_to(ring->pending().end);
    fake.put(between);
    fake.page().aux_head = fake.written;
    return ring->release();
  };
  EXPECT_FALSE(round(2 * kPage, 0));
  EXPECT_TRUE(round(4 * kPage - 1, 0)) << "one byte less than the area is all that a writer gets";
  EXPECT_FALSE(round(100, kPage));
  EXPECT_FALSE(round(0, kPage)) << "what has been given back does not count";
  EXPECT_TRUE(round(2 * kPage, kPage - 1)) << "it filled while the reader worked";
}

TEST(AuxRing, NamesWhatWasWrittenOver) {
  FakeAux fake;
  const auto ring = fake.ring(AuxMode::full);
  fake.put(kPage + 100);
  fake.page().aux_head = fake.written;
  const RingPart part = ring->pending();
  EXPECT_EQ(part.lost_bytes, 100U);
  EXPECT_EQ(part.begin, 100U);
  expect_stream(part);
}

TEST(AuxRing, ASpoiledHeadIsNothingToRead) {
  FakeAux fake;
  fake.page().aux_tail = 5000;
  const auto ring = fake.ring(AuxMode::full);
  fake.page().aux_head = 100;
  EXPECT_EQ(ring->pending().size_bytes(), 0U);
  fake.page().aux_head = ~uint64_t{0};
  EXPECT_EQ(ring->pending().size_bytes(), 0U);
}

TEST(AuxRing, SnapshotBeforeTheFirstRoundIsWhatWasWritten) {
  FakeAux fake;
  const auto ring = fake.ring(AuxMode::overwrite);
  fake.put(1000);
  fake.page().aux_head = 1000;
  const RingPart part = ring->snapshot();
  EXPECT_EQ(part.begin, 0U);
  EXPECT_EQ(part.size_bytes(), 1000U);
  expect_stream(part);
}

TEST(AuxRing, SnapshotIsTheLastRoundHoweverTheHeadCounts) {
  for (const uint64_t written : {kPage + 1000, 7 * kPage + 5, 3 * kPage}) {
    FakeAux on_and_on, in_place;
    on_and_on.put(written);
    in_place.put(written);
    on_and_on.page().aux_head = written;
    in_place.page().aux_head = written % kPage;
    const RingPart counted = on_and_on.ring(AuxMode::overwrite)->snapshot();
    EXPECT_EQ(counted.end, written);
    EXPECT_EQ(counted.size_bytes(), kPage);
    expect_stream(counted);
    const RingPart placed = in_place.ring(AuxMode::overwrite)->snapshot();
    ASSERT_EQ(placed.size_bytes(), kPage);
    const auto bytes = [](const RingPart& part) {
      std::vector<std::byte> all(part.first.begin(), part.first.end());
      all.insert(all.end(), part.second.begin(), part.second.end());
      return all;
    };
    EXPECT_EQ(bytes(placed), bytes(counted)) << written;
  }
}

TEST(AuxRing, RefusesSizesThatTheKernelHasNot) {
  std::vector<std::byte> memory(2 * kPage);
  auto& control = *reinterpret_cast<perf_event_mmap_page*>(memory.data());
  control.data_offset = control.data_size = kPage;
  const auto ring = EventRing::over(memory);
  ASSERT_TRUE(ring.ok());
  for (const uint64_t size : {uint64_t{0}, uint64_t{kPage / 2}, uint64_t{3 * kPage}}) {
    EXPECT_FALSE(AuxRing::map(-1, **ring, size, AuxMode::full).ok()) << size;
  }
  EXPECT_FALSE(AuxRing::over(std::span(memory).first(64), memory, AuxMode::full).ok());
}

/// The kernel's side of a data ring: waits for free space, or counts the records that it had to drop.
struct FakeData {
  std::vector<std::byte> memory = std::vector<std::byte>(2 * kPage);
  perf_event_mmap_page& page() { return *reinterpret_cast<perf_event_mmap_page*>(memory.data()); }
  FakeData() { page().data_offset = page().data_size = kPage; }
  bool put(uint64_t number, uint16_t size) {
    std::atomic_ref head(page().data_head);
    const uint64_t at = head.load(std::memory_order_relaxed);
    if (at + size - std::atomic_ref(page().data_tail).load(std::memory_order_acquire) > kPage) return false;
    std::vector<std::byte> record(size, static_cast<std::byte>(number));
    const perf_event_header header{PERF_RECORD_LOST, 0, size};
    std::memcpy(record.data(), &header, sizeof(header));
    std::memcpy(record.data() + sizeof(header), &number, sizeof(number));
    for (size_t i = 0; i < record.size(); ++i) memory[kPage + (at + i) % kPage] = record[i];
    head.store(at + size, std::memory_order_release);
    return true;
  }
};

uint64_t number_of(Bytes record) {
  uint64_t number = 0;
  std::memcpy(&number, record.data() + sizeof(perf_event_header), sizeof(number));
  return number;
}

TEST(RingThreads, EveryRecordOnceWhileBothRun) {
  constexpr uint64_t kRecords = 50000;
  FakeData fake;
  auto ring = EventRing::over(fake.memory);
  ASSERT_TRUE(ring.ok());
  std::thread writer([&] {
    for (uint64_t number = 0; number < kRecords;) {
      const auto size = static_cast<uint16_t>(16 + 8 * (number * 7 % 60));
      if (fake.put(number, size)) {
        ++number;
      } else {
        std::this_thread::yield();
      }
    }
  });
  uint64_t next = 0;
  bool right = true;
  const auto look = [&](Bytes record) {
    right = right && number_of(record) == next && record.back() == (record.size() > 16 ? static_cast<std::byte>(next) : record.back());
    ++next;
  };
  while (next < kRecords && right) {
    if (next % 2 == 0) {
      (void)(*ring)->drain(look);
    } else {
      (void)(*ring)->read(look);
      (*ring)->release();
    }
    std::this_thread::yield();
  }
  writer.join();
  EXPECT_TRUE(right) << "record " << next;
  EXPECT_EQ((*ring)->damaged(), 0U);
}

TEST(RingThreads, EveryTraceByteOnceWhileBothRun) {
  constexpr uint64_t kBytes = 8 << 20;
  FakeAux fake;
  const auto ring = fake.ring(AuxMode::full);
  std::thread writer([&] {
    std::atomic_ref head(fake.page().aux_head), tail(fake.page().aux_tail);
    for (uint64_t step = 1; fake.written < kBytes; step = step * 5 % 1021 + 1) {
      const uint64_t room = kPage - (fake.written - tail.load(std::memory_order_acquire));
      fake.put(std::min({room, step, kBytes - fake.written}));
      head.store(fake.written, std::memory_order_release);
      if (room == 0) std::this_thread::yield();
    }
  });
  uint64_t wrong = 0;
  while (ring->position() < kBytes) {
    const RingPart part = ring->pending();
    for (uint64_t i = 0; i < part.size_bytes(); ++i) {
      wrong += (i < part.first.size() ? part.first[i] : part.second[i - part.first.size()]) != stream_byte(part.begin + i) ? 1 : 0;
    }
    wrong += part.lost_bytes;
    ring->read_to(part.end);
    ring->release();
    if (part.size_bytes() == 0) std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(wrong, 0U);
}

/// ThreadSanitizer must report this; tests/live runs it and expects the report.
TEST(RingThreads, DISABLED_AWriterThatKeepsNoOrder) {
  constexpr uint64_t kBytes = 1 << 16;
  FakeAux fake;
  const auto ring = fake.ring(AuxMode::full);
  std::thread writer([&] {
    std::atomic_ref head(fake.page().aux_head), tail(fake.page().aux_tail);
    while (fake.written < kBytes) {
      fake.put(std::min<uint64_t>(kPage - (fake.written - tail.load(std::memory_order_acquire)), kBytes - fake.written));
      head.store(fake.written, std::memory_order_relaxed);
      std::this_thread::yield();
    }
  });
  uint64_t sum = 0;
  while (ring->position() < kBytes) {
    const RingPart part = ring->pending();
    for (const std::byte byte : part.first) sum += static_cast<uint64_t>(byte);
    ring->read_to(part.end);
    (void)ring->release();
    std::this_thread::yield();
  }
  writer.join();
  EXPECT_NE(sum, 0U);
}

TEST(RingThreads, SnapshotsOfAWriterThatIsStopped) {
  FakeAux fake;
  const auto ring = fake.ring(AuxMode::overwrite);
  std::atomic<uint64_t> asked = 0, answered = 0;  // odd: the writer must pause
  std::atomic<bool> end = false;
  std::thread writer([&] {
    while (!end.load(std::memory_order_acquire)) {
      const uint64_t order = asked.load(std::memory_order_acquire);
      answered.store(order, std::memory_order_release);
      if (order % 2 == 1) {
        std::this_thread::yield();
        continue;
      }
      fake.put(97);
      std::atomic_ref(fake.page().aux_head).store(fake.written, std::memory_order_release);
    }
  });
  const auto order = [&](uint64_t number) {
    asked.store(number, std::memory_order_release);
    while (answered.load(std::memory_order_acquire) != number) std::this_thread::yield();
  };
  uint64_t last = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    order(2 * i + 1);
    const RingPart part = ring->snapshot();
    EXPECT_GE(part.end, last);
    last = part.end;
    expect_stream(part);
    order(2 * i + 2);
  }
  end = true;
  writer.join();
}

TEST(EventRing, KeepsWhatWasReadUntilItIsGivenBack) {
  FakeData fake;
  auto ring = EventRing::over(fake.memory);
  ASSERT_TRUE(ring.ok());
  ASSERT_TRUE(fake.put(1, 2000) && fake.put(2, 2000));
  EXPECT_FALSE(fake.put(3, 200));
  EXPECT_EQ((*ring)->read([](Bytes) {}), 2U);
  EXPECT_FALSE(fake.put(3, 200)) << "read is not given back";
  EXPECT_EQ((*ring)->read([](Bytes) {}), 0U);
  auto second = EventRing::over(fake.memory);  // another reader, which finds all records again, or continues after the first one
  EXPECT_EQ((*second)->read([](Bytes) {}), 2U);
  auto third = EventRing::over(fake.memory);
  (*third)->seek(2000);
  EXPECT_EQ((*third)->read([](Bytes record) { EXPECT_EQ(number_of(record), 2U); }), 1U);
  (*ring)->release();
  EXPECT_TRUE(fake.put(3, 200));
  (*third)->seek(999999);  // an invalid position: starts after the released records
  EXPECT_EQ((*third)->read([](Bytes record) { EXPECT_EQ(number_of(record), 3U); }), 1U);
}

TEST(EventRing, ABackwardRingGivesTheNewestFirst) {
  std::vector<std::byte> data(kPage);
  uint64_t head = 0;
  for (uint64_t number = 1; number <= 40; ++number) {
    constexpr uint16_t kSize = 200;
    head -= kSize;
    std::vector<std::byte> record(kSize);
    const perf_event_header header{PERF_RECORD_LOST, 0, kSize};
    std::memcpy(record.data(), &header, sizeof(header));
    std::memcpy(record.data() + sizeof(header), &number, sizeof(number));
    for (size_t i = 0; i < kSize; ++i) data[(head + i) % kPage] = record[i];
    std::vector<uint64_t> seen;
    (void)read_backward_ring(data, head, [&](Bytes one) { seen.push_back(number_of(one)); });
    ASSERT_EQ(seen.size(), std::min<uint64_t>(number, kPage / kSize)) << number;
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], number - i);
  }
}

}  // namespace
}  // namespace ptd::perfio
