// EventRing over memory in the layout of [perf_event.h] "struct perf_event_mmap_page": straddling records, damage, the clock.
#include "perfio/ring/event_ring.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>

#include <cstring>

namespace ptd::perfio {
namespace {

constexpr size_t kRingPage = 4096;

/// A control page and one page of records, written in the way of the kernel.
struct FakeRing {
  std::vector<std::byte> memory = std::vector<std::byte>(2 * kRingPage);
  perf_event_mmap_page& control() { return *reinterpret_cast<perf_event_mmap_page*>(memory.data()); }
  FakeRing() {
    control().data_offset = kRingPage;
    control().data_size = kRingPage;
  }
  void write(uint16_t size, uint8_t fill) {
    std::vector<uint8_t> record(size, fill);
    const perf_event_header header{PERF_RECORD_TEXT_POKE, 0, size};
    std::memcpy(record.data(), &header, sizeof(header));
    for (const uint8_t byte : record) memory[kRingPage + control().data_head++ % kRingPage] = std::byte{byte};
  }
};

TEST(EventRing, GivesWholeRecordsAlsoAcrossTheEnd) {
  FakeRing fake;
  auto ring = EventRing::over(fake.memory);
  ASSERT_TRUE(ring.ok());
  std::vector<std::pair<size_t, uint8_t>> seen;
  const auto note = [&](Bytes record) { seen.emplace_back(record.size(), static_cast<uint8_t>(record.back())); };
  fake.write(4000, 1);
  EXPECT_EQ((*ring)->pending_bytes(), 4000U);
  EXPECT_EQ((*ring)->drain(note), 1U);
  fake.write(200, 2);  // 96 bytes before the end, 104 after it
  fake.write(16, 3);
  EXPECT_EQ((*ring)->drain(note), 2U);
  EXPECT_EQ((*ring)->drain(note), 0U);
  EXPECT_EQ(seen, (std::vector<std::pair<size_t, uint8_t>>{{4000, 1}, {200, 2}, {16, 3}}));
  EXPECT_EQ(fake.control().data_tail, fake.control().data_head);
  EXPECT_EQ((*ring)->damaged(), 0U);
}

TEST(EventRing, ThrowsAwayWhatHasNoSize) {
  FakeRing fake;
  auto ring = EventRing::over(fake.memory);
  ASSERT_TRUE(ring.ok());
  fake.write(32, 1);
  fake.control().data_head += 64;  // zeros: a record of size 0
  EXPECT_EQ((*ring)->drain([](Bytes) {}), 1U);
  EXPECT_EQ((*ring)->damaged(), 1U);
  EXPECT_EQ((*ring)->pending_bytes(), 0U);
}

TEST(EventRing, RefusesMemoryThatIsNoRing) {
  FakeRing fake;
  fake.control().data_size = kRingPage - 8;
  EXPECT_FALSE(EventRing::over(fake.memory).ok());
  fake.control().data_size = 2 * kRingPage;
  EXPECT_FALSE(EventRing::over(fake.memory).ok());
  EXPECT_FALSE(EventRing::over(std::span(fake.memory).first(16)).ok());
}

TEST(EventRing, ReadsTheClockOnlyWhereTheKernelGivesIt) {
  FakeRing fake;
  auto ring = EventRing::over(fake.memory);
  ASSERT_TRUE(ring.ok());
  EXPECT_FALSE((*ring)->time_conversion().has_value());
  fake.control().cap_user_time_zero = 1;
  fake.control().time_shift = 31;
  fake.control().time_mult = 1U << 31;
  fake.control().time_zero = 77;
  const auto conversion = (*ring)->time_conversion();
  ASSERT_TRUE(conversion.has_value());
  EXPECT_EQ(conversion->time_shift, 31U);
  EXPECT_EQ(conversion->time_mult, 1U << 31);
  EXPECT_EQ(conversion->time_zero, 77U);
}

}  // namespace
}  // namespace ptd::perfio
