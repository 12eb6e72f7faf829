// ZeroedArray: growth keeps the elements and adds zero ones.
#include "decoder/pt/runner/zeroed_array.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace ptd::pt {
namespace {

struct alignas(64) Line {
  uint64_t number = 0;
};

TEST(ZeroedArray, GrowthKeepsElementsAndAddsZeros) {
  ZeroedArray<Line> lines;
  constexpr uint64_t kLines = 300'000;  // 19 MB: from the heap into mapped pages, and moved there
  for (uint64_t i = 0; i < kLines; ++i) lines.push_back({i * i + 1});
  lines.grow_to(2 * kLines);
  ASSERT_EQ(lines.size(), 2 * kLines);
  for (uint64_t i = 0; i < kLines; ++i) ASSERT_EQ(lines[i].number, i * i + 1);
  for (uint64_t i = kLines; i < 2 * kLines; ++i) ASSERT_EQ(lines[i].number, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(lines.data()) % alignof(Line), 0U);
  EXPECT_GE(lines.memory_bytes(), 2 * kLines * sizeof(Line));
}

TEST(ZeroedArray, GrowToNeverShrinks) {
  ZeroedArray<uint32_t> numbers;
  numbers.grow_to(10);
  numbers[9] = 7;
  numbers.grow_to(3);
  ASSERT_EQ(numbers.size(), 10U);
  EXPECT_EQ(numbers[9], 7U);
}

TEST(ZeroedArray, ClearedElementsAreZeroAgain) {
  ZeroedArray<uint32_t> numbers;
  for (uint32_t i = 0; i < 1000; ++i) numbers.push_back(~i);
  numbers.clear();
  EXPECT_EQ(numbers.size(), 0U);
  EXPECT_EQ(numbers.memory_bytes(), 0U);
  numbers.grow_to(1000);
  for (uint32_t i = 0; i < 1000; ++i) ASSERT_EQ(numbers[i], 0U);
}

TEST(ZeroedArray, MovesItsMemory) {
  ZeroedArray<uint32_t> from;
  from.push_back(5);
  ZeroedArray<uint32_t> to = std::exchange(from, {});
  EXPECT_EQ(from.size(), 0U);
  ASSERT_EQ(to.size(), 1U);
  EXPECT_EQ(to[0], 5U);
}

}  // namespace
}  // namespace ptd::pt
