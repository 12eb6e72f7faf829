// FunctionProfile: quantiles against a sorted list, recursion counted once.
#include "ptdecode/function_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "analysis/call_flow.h"

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

TEST(FunctionProfile, CallsOfAThreadWithoutTimesAreUndated) {
  CallTree tree(nullptr);
  std::vector<CallStep> out;
  for (const auto& [tid, start] : {std::pair(7, uint64_t{1000}), std::pair(8, uint64_t{0})}) {
    uint64_t now = start;
    const auto take = [&, tid = tid, start = start](FlowStep step) {
      step.tid = tid;
      step.time = step.floor = TimeNs{now};
      now += start / 100;
      tree.take(step, out);
    };
    take({.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .function = 0, .to = Ip{0x1000}});
    take({.kind = FlowKind::call, .flags = kFlowEntry | kFlowNamed, .function = 1, .to = Ip{0x2000}, .return_to = Ip{0x1010}});
    take({.kind = FlowKind::ret, .flags = kFlowNamed, .function = 0, .to = Ip{0x1010}});
  }
  tree.finish(out);
  FunctionProfile profile;
  size_t undated = 0;
  for (const CallStep& step : out) {
    if (step.kind != CallStepKind::leave) continue;
    EXPECT_EQ((step.flags & kCallUndated) != 0, tree.threads()[step.thread].tid == 8);
    undated += (step.flags & kCallUndated) != 0 ? 1 : 0;
    profile.add(std::span(&step, 1));
  }
  EXPECT_EQ(undated, 2U);
  EXPECT_EQ(profile.of(1).undated, 1U);
  EXPECT_EQ(profile.of(1).durations.count(), 1U);
}

TEST(FunctionProfile, CallsWithoutTimesHaveNoDuration) {
  CallStep dated, undated;
  dated.kind = undated.kind = CallStepKind::leave;
  dated.function = undated.function = 0;
  undated.flags = kCallUndated;
  dated.start = TimeNs{10}, dated.time = TimeNs{30}, dated.self_ns = 20;
  FunctionProfile profile;
  profile.add(std::vector<CallStep>{undated});
  EXPECT_EQ(profile.of(0).calls, 1U);
  EXPECT_EQ(profile.of(0).durations.count(), 0U);
  EXPECT_FALSE(profile.of(0).has_times());
  profile.add(std::vector<CallStep>{dated});
  EXPECT_TRUE(profile.of(0).has_times());
  EXPECT_EQ(profile.of(0).durations.quantile(0.5), 20U);
}

}  // namespace
}  // namespace ptd
