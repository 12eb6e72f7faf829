// The cost of mispredict packets: they go past elements that they neither invert nor remove, which is bounded by the bytes of the trace.
#include <gtest/gtest.h>

#include <ctime>

#include "decoder/arm/elements.h"

namespace ptd::test {
namespace {

arm::Element of(arm::ElementKind kind) {
  arm::Element element;
  element.kind = kind;
  element.count = kind == arm::ElementKind::atoms ? 1 : 0;
  element.p0 = kind == arm::ElementKind::atoms;
  return element;
}
const arm::Element kAtom = of(arm::ElementKind::atoms), kAddress = of(arm::ElementKind::address), kEvent = of(arm::ElementKind::event);

// The addresses go in one pass. One by one, it takes many seconds.
TEST(ElementQueue, AMispredictRemovesManyAddressesAtOnce) {
  arm::ElementQueue queue;
  ASSERT_TRUE(queue.push(kAtom));
  while (queue.size() + 2 <= arm::ElementQueue::kMost) ASSERT_TRUE(queue.push(kAddress) && queue.push(kEvent));
  const std::clock_t start = std::clock();
  EXPECT_TRUE(queue.mispredict());
  EXPECT_LT(std::clock() - start, 2 * CLOCKS_PER_SEC);
  EXPECT_EQ(queue.size(), arm::ElementQueue::kMost / 2);
  EXPECT_EQ(queue.front().value, 1U);
  for (size_t i = 1; i < queue.size(); ++i) ASSERT_EQ(queue.at(i)->kind, arm::ElementKind::event);
}

// What a trace unit writes where it speculates: an atom, what seemed to follow, and a mispredict packet. A trace of any length may hold it.
TEST(ElementQueue, ALongTraceWithMispredictsIsNotUnwieldy) {
  constexpr uint64_t kRounds = 1'000'000;
  constexpr size_t kEvents = 8;
  arm::ElementQueue queue;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    ASSERT_TRUE(queue.push(kAtom) && queue.push(kAddress));
    for (size_t i = 0; i < kEvents; ++i) ASSERT_TRUE(queue.push(kEvent));
    ASSERT_TRUE(queue.mispredict());
    ASSERT_FALSE(queue.is_unwieldy(round * (3 + kEvents)));
    while (!queue.empty()) queue.pop_front();
  }
}

TEST(ElementQueue, MispredictsThatPassTheSameElementsAreUnwieldy) {
  arm::ElementQueue queue;
  ASSERT_TRUE(queue.push(kAtom));
  constexpr uint64_t kEvents = 10'000, kMost = 10'000;
  for (uint64_t i = 0; i < kEvents; ++i) ASSERT_TRUE(queue.push(kEvent));
  uint64_t count = 0;
  for (; count < kMost && !queue.is_unwieldy(kEvents + count); ++count) ASSERT_TRUE(queue.mispredict());
  EXPECT_LT(count, kMost);
}

}  // namespace
}  // namespace ptd::test
