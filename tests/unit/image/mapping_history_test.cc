// Code that is mapped to one place again and again: the contents of all times, and the cost of finding them.
#include "image/mapping_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "image/fetch_steps.h"
#include "timeline_support.h"

namespace ptd::timeline_test {
namespace {

constexpr uint64_t kMappedAt = 0x400000;

// At each address a fetch of all times finds what fetches of the single moments find, in order of the first moment.
TEST(MappingHistory, AllTimesShowWhatEachMomentShows) {
  std::mt19937 random(5);
  const auto pick = [&](uint64_t most) { return random() % (most + 1); };
  const std::array<CodeBytes, 4> files{filled(0x60, 1), filled(0x60, 2), filled(0x60, 1), filled(0x30, 3)};
  TimelineBuilder builder;
  const SpaceId parent = builder.add_space();
  const SpaceId child = builder.fork_space(parent, TimeNs{20});
  for (int i = 0; i < 60; ++i) {
    const SpaceId space = i % 2 == 0 ? parent : child;
    const uint64_t ip = kMappedAt + pick(4) * 0x20;
    const TimeNs when{1 + pick(60)};
    if (pick(5) == 0) {
      builder.remove(space, Ip{ip}, 0x40, when);
      continue;
    }
    Section file = section(space, ip, files[pick(3)], {when, pick(3) == 0 ? TimeNs{when.value + pick(9)} : kTimeMax});
    if (pick(4) == 0) file.code = {};
    builder.add_section(std::move(file));
  }
  const Timeline timeline = builder.build();
  CodeView view(timeline);
  size_t several = 0;
  for (const SpaceId space : {parent, child}) {
    for (uint64_t ip = kMappedAt - 8; ip < kMappedAt + 0x100; ip += 4) {
      std::string moments;
      for (uint64_t t = 0; t <= 100; ++t) {
        std::array<CodeCandidate, 4> got;
        const FetchResult result = view.fetch(space, Ip{ip}, at(t), {}, got, 4);
        ASSERT_LE(result.count, 1U);
        if (result.count == 0) continue;
        const std::string content = to_hex(got[0].bytes.first(std::min<size_t>(4, got[0].bytes.size()))) + " ";
        if (moments.find(content) == std::string::npos) moments += content;
      }
      std::array<CodeCandidate, 8> got;
      const FetchResult result = view.fetch(space, Ip{ip}, {}, {}, got, 4);
      std::string all;
      for (uint32_t i = 0; i < result.count; ++i) {
        all += to_hex(got[i].bytes.first(std::min<size_t>(4, got[i].bytes.size()))) + " ";
        const Interval certain = got[i].certain;
        for (uint64_t t = certain.first.value; !certain.empty() && t <= std::min<uint64_t>(certain.last.value, 100); ++t) {
          std::array<CodeCandidate, 4> then;
          ASSERT_EQ(view.fetch(space, Ip{ip}, at(t), {}, then, 4).count, 1U);
          ASSERT_EQ(then[0].bytes[0], got[i].bytes[0]) << ip << " " << t;
        }
      }
      ASSERT_EQ(all, moments) << space.value << " " << std::hex << ip;
      several += result.count > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(several, 20U);
}

// A library that is mapped, and then in its place a file that is refused, again and again.
TEST(MappingHistory, AFetchOfAllTimesCountsContentsNotMappings) {
  const auto steps_of = [](uint64_t count, bool forked) {
    TimelineBuilder builder;
    const SpaceId parent = builder.add_space();
    const SpaceId space = forked ? builder.fork_space(parent, TimeNs{1}) : parent;
    const CodeBytes library = filled(0x10000, 1);
    for (uint64_t i = 0; i < count; ++i) {
      Section mapped = section(space, kMappedAt, library, {TimeNs{10 + i}, kTimeMax});
      if (i % 2 == 1) mapped.code = {};
      builder.add_section(std::move(mapped));
    }
    const Timeline timeline = builder.build();
    CodeView view(timeline);
    const uint64_t before = fetch_steps().taken;
    for (uint64_t ip = kMappedAt; ip < kMappedAt + 0x10000 - 15; ip += 64) {
      std::array<CodeCandidate, 4> got;
      EXPECT_EQ(view.fetch(space, Ip{ip}, {}, {}, got).count, 1U);
    }
    return fetch_steps().taken - before;
  };
  for (const bool forked : {false, true}) EXPECT_LE(steps_of(2000, forked), 2 * steps_of(200, forked));
}

// More distinct contents than anything but a crafted file maps to one address are not compared.
TEST(MappingHistory, AFetchOfAllTimesGivesUpBeyondALimit) {
  const auto fetch = [](uint64_t count) {
    TimelineBuilder builder;
    const SpaceId space = builder.add_space();
    for (uint64_t i = 0; i < count; ++i) builder.add_section(section(space, kMappedAt, filled(64, 1), {TimeNs{10 + i}, kTimeMax}));
    CodeView view(builder.build());
    std::array<CodeCandidate, 4> got;
    const uint64_t before = fetch_steps().taken;
    const FetchResult result = view.fetch(space, Ip{kMappedAt}, {}, {}, got);
    return std::pair(result.status, fetch_steps().taken - before);
  };
  EXPECT_EQ(fetch(1000).first, FetchStatus::ok);
  EXPECT_EQ(fetch(20'000).first, FetchStatus::too_many);
  EXPECT_LE(fetch(20'000).second, fetch(1000).second);
}

TEST(MappingHistory, TheMappingsOfARangeAreCollectedOnce) {
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  constexpr uint64_t kCount = 2000;
  for (uint64_t i = 0; i < kCount; ++i) builder.add_section(section(space, kMappedAt, filled(0x1000, 1), {TimeNs{10 + i}, kTimeMax}));
  const Timeline timeline = builder.build();
  MappingHistories histories;
  for (uint64_t ip = kMappedAt; ip < kMappedAt + 0x1000; ++ip) ASSERT_EQ(histories.at(timeline.data(), space, ip)->mappings, kCount);
  EXPECT_EQ(histories.collected(), kCount + 1);
}

}  // namespace
}  // namespace ptd::timeline_test
