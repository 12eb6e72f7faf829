// FunctionProfile: quantiles against a sorted list, recursion counted once.
#include "ptdecode/function_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace ptd {
namespace {

TEST(DurationCounts, QuantilesAreThoseOfTheSortedListWithinOnePercent) {
  std::mt19937_64 random(5);
  for (const size_t count : {1U, 2U, 100U, 1023U, 1024U, 50'000U}) {
    DurationCounts counts;
    std::vector<uint64_t> sorted;
    for (size_t i = 0; i < count; ++i) {
      sorted.push_back(random() >> (random() % 64));
      counts.add(sorted.back());
    }
    std::sort(sorted.begin(), sorted.end());
    for (const double share : {0.001, 0.5, 0.99, 1.0}) {
      const uint64_t want = sorted[static_cast<size_t>(std::max(1.0, std::ceil(share * static_cast<double>(count)))) - 1];
      const uint64_t got = counts.quantile(share);
      EXPECT_LE(want, got);
      EXPECT_LE(static_cast<double>(got), count < 1024 ? static_cast<double>(want) : static_cast<double>(want) * 1.01);
    }
    EXPECT_EQ(counts.max(), sorted.back());
  }
  EXPECT_EQ(DurationCounts().quantile(0.5), 0U);
}

TEST(FunctionProfile, RecursionCountsOnceInTotal) {
  CallStep outer, inner;
  outer.kind = inner.kind = CallStepKind::leave;
  outer.function = inner.function = 3;
  inner.flags = kCallInner;
  inner.start = TimeNs{10}, inner.time = TimeNs{30}, inner.self_ns = 20;
  outer.start = TimeNs{0}, outer.time = TimeNs{50}, outer.self_ns = 30;
  FunctionProfile profile;
  profile.add(std::vector<CallStep>{inner, outer});
  const FunctionTotals& totals = profile.functions().at(3);
  EXPECT_EQ(totals.calls, 2U);
  EXPECT_EQ(totals.total_ns, 50U);
  EXPECT_EQ(totals.self_ns, 50U);
  EXPECT_EQ(totals.durations.quantile(1), 50U);
}

}  // namespace
}  // namespace ptd
