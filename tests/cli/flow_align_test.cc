// The aligner of flows: against the longest common subsequence if that can be computed, and on damage of known extent.
#include "cli/verify/flow_align.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ptd::cli {
namespace {

using Keys = std::vector<uint64_t>;

std::vector<uint32_t> aligned(const Keys& flow, const Keys& other, const std::vector<uint32_t>& gaps = {}) {
  std::vector<uint32_t> match(flow.size(), kUnmatched);
  align_flows(flow, other, gaps, 0, match);
  return match;
}

// Checks that matched elements are equal and in order. Returns their number.
size_t checked_count(const Keys& flow, const Keys& other, const std::vector<uint32_t>& match) {
  size_t count = 0;
  uint64_t next = 0;
  for (size_t i = 0; i < flow.size(); ++i) {
    if (match[i] == kUnmatched) continue;
    EXPECT_LT(match[i], other.size());
    EXPECT_GE(match[i], next);
    EXPECT_EQ(flow[i], other[match[i]]);
    next = match[i] + uint64_t{1};
    ++count;
  }
  return count;
}

size_t longest_common(const Keys& a, const Keys& b) {
  std::vector<size_t> row(b.size() + 1);
  for (const uint64_t key : a) {
    size_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = key == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row.back();
}

// A flow like that of a program: functions of straight-line code, called in any order, some in loops.
Keys program_flow(std::mt19937& random, size_t calls) {
  Keys flow;
  for (size_t i = 0; i < calls; ++i) {
    const uint64_t function = random() % 12;
    const size_t rounds = random() % 4 == 0 ? 1 + random() % 20 : 1;
    for (size_t r = 0; r < rounds; ++r) {
      for (uint64_t k = 0; k < 5 + function; ++k) flow.push_back(1000 * function + k);
    }
  }
  return flow;
}

TEST(FlowAlign, EqualFlowsMatchWholly) {
  std::mt19937 random(1);
  const Keys flow = program_flow(random, 200);
  EXPECT_EQ(checked_count(flow, flow, aligned(flow, flow)), flow.size());
  EXPECT_TRUE(aligned({}, flow).empty());
  EXPECT_EQ(checked_count(flow, {}, aligned(flow, {})), 0U);
}

TEST(FlowAlign, AStretchLeftOutCostsThatStretch) {
  std::mt19937 random(2);
  for (int i = 0; i < 50; ++i) {
    const Keys whole = program_flow(random, 300);
    Keys cut = whole;
    const size_t first = random() % (whole.size() / 2), size = 1 + random() % 500;
    cut.erase(cut.begin() + static_cast<std::ptrdiff_t>(first),
              cut.begin() + static_cast<std::ptrdiff_t>(std::min(first + size, cut.size())));
    EXPECT_EQ(checked_count(cut, whole, aligned(cut, whole)), cut.size());
  }
}

// Runs between gaps, from one instruction on, in code that is mostly loops. Nothing of them is wrong.
TEST(FlowAlign, RunsBetweenGapsMatchWholly) {
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    const Keys truth = program_flow(random, 400);
    Keys decoded;
    std::vector<uint32_t> gaps;
    for (size_t at = 0; at < truth.size();) {
      const size_t end = std::min(at + 1 + random() % (i < 25 ? 7 : 60), truth.size());
      decoded.insert(decoded.end(), truth.begin() + static_cast<std::ptrdiff_t>(at), truth.begin() + static_cast<std::ptrdiff_t>(end));
      gaps.push_back(static_cast<uint32_t>(decoded.size()));
      at = end + 1 + random() % 200;
    }
    EXPECT_EQ(checked_count(decoded, truth, aligned(decoded, truth, gaps)), decoded.size()) << i;
  }
}

// Without a gap before it, a short run is not looked for elsewhere: it is wrong.
TEST(FlowAlign, WhatContinuesTheFlowIsNotPlacedElsewhere) {
  Keys truth;
  for (uint64_t i = 0; i < 1000; ++i) truth.push_back(i);
  const Keys decoded = {0, 1, 2, 500, 501, 700, 701, 702};
  const std::vector<uint32_t> match = aligned(decoded, truth, {5, 8});
  EXPECT_EQ(match, (std::vector<uint32_t>{0, 1, 2, kUnmatched, kUnmatched, 700, 701, 702}));
}

// A wrong instruction in one of many runs costs that run.
TEST(FlowAlign, AWrongRunBetweenGapsCostsThatRun) {
  std::mt19937 random(6);
  const Keys truth = program_flow(random, 400);
  Keys decoded;
  std::vector<uint32_t> gaps;
  for (size_t at = 0; at + 6 < truth.size(); at += 100) {
    decoded.insert(decoded.end(), truth.begin() + static_cast<std::ptrdiff_t>(at), truth.begin() + static_cast<std::ptrdiff_t>(at + 6));
    gaps.push_back(static_cast<uint32_t>(decoded.size()));
  }
  decoded[6 * (gaps.size() / 2) + 3] = 1U << 30;
  EXPECT_EQ(checked_count(decoded, truth, aligned(decoded, truth, gaps)), decoded.size() - 6);
}

// Wrong runs between gaps, of code that runs elsewhere too: the right ones around them stay right.
TEST(FlowAlign, PlausibleWrongRunsBetweenGapsCostThemselves) {
  for (const size_t longest : {size_t{6}, size_t{60}}) {
    std::mt19937 random(7);
    size_t all = 0, found = 0, right = 0;
    for (int i = 0; i < 40; ++i) {
      const Keys truth = program_flow(random, 400);
      Keys decoded;
      std::vector<uint32_t> gaps;
      for (size_t at = 0; at < truth.size();) {
        const size_t end = std::min(at + 1 + random() % longest, truth.size()), first = decoded.size();
        decoded.insert(decoded.end(), truth.begin() + static_cast<std::ptrdiff_t>(at), truth.begin() + static_cast<std::ptrdiff_t>(end));
        const bool wrong = random() % 20 == 0;
        if (wrong) decoded[first + random() % (end - at)] = truth[random() % truth.size()];
        right += wrong ? 0 : end - at;
        gaps.push_back(static_cast<uint32_t>(decoded.size()));
        at = end + 1 + random() % 200;
      }
      found += checked_count(decoded, truth, aligned(decoded, truth, gaps));
      all += decoded.size();
    }
    EXPECT_GE(found + all / 50, right) << longest << ": " << all;
  }
}

// A part of the loop's code also runs before the loop, so that its stretches are found one round too early. Before it are many wrong runs,
// whose search must leave enough steps for the rounds.
TEST(FlowAlign, RunsInWrongRoundsOfALoopArePlacedAgain) {
  const auto append = [](Keys& keys, uint64_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) keys.push_back(first + i);
  };
  Keys round;
  for (const auto& [first, count] : {std::pair<uint64_t, size_t>(1000, 15), {2000, 100}, {3000, 18}}) append(round, first, count);
  Keys flow, other;
  append(flow, 10, 45);
  append(other, 10, 45);
  append(other, 100, 8);
  append(other, 2000, 100);
  append(other, 300, 20);
  append(other, 100000, 50000);
  std::vector<uint32_t> gaps;
  constexpr uint64_t kWrongRuns = 300, kWrongKeys = 10;
  for (uint64_t i = 0; i < kWrongRuns; ++i) {
    gaps.push_back(static_cast<uint32_t>(flow.size()));
    append(flow, 1000000 + 100 * i, kWrongKeys);
  }
  for (uint64_t i = 0; i < 4; ++i) {
    gaps.push_back(static_cast<uint32_t>(flow.size()));
    flow.insert(flow.end(), round.begin(), round.end());
    other.insert(other.end(), round.begin(), round.end());
    append(other, 10000 + 1000 * i, 117);  // lost in the gap after the round
  }
  gaps.push_back(static_cast<uint32_t>(flow.size()));
  append(flow, 20000, 400);
  append(other, 20000, 400);
  flow[flow.size() - 200] = 7;
  EXPECT_EQ(checked_count(flow, other, aligned(flow, other, gaps)), flow.size() - 1 - kWrongRuns * kWrongKeys);
}

TEST(FlowAlign, ManyWrongStretchesAreNearTheLongestCommonOnes) {
  std::mt19937 random(3);
  size_t best = 0, found = 0;
  for (int i = 0; i < 20; ++i) {
    const Keys truth = program_flow(random, 150);
    Keys decoded;
    for (size_t at = 0; at < truth.size();) {
      const size_t take = 20 + random() % 60, skip = random() % 15, wrong = random() % 15;
      decoded.insert(decoded.end(), truth.begin() + static_cast<std::ptrdiff_t>(at),
                     truth.begin() + static_cast<std::ptrdiff_t>(std::min(at + take, truth.size())));
      for (size_t k = 0; k < wrong; ++k) decoded.push_back(truth[random() % truth.size()]);
      at += take + skip;
    }
    const size_t count = checked_count(decoded, truth, aligned(decoded, truth)), longest = longest_common(decoded, truth);
    EXPECT_LE(count, longest);
    best += longest;
    found += count;
  }
  EXPECT_GE(found, best * 85 / 100);
}

// A short function called repeatedly, one instruction of which changes now and then: little more than the changes differs.
TEST(FlowAlign, OneInstructionOfALoopDiffers) {
  Keys truth, decoded;
  for (uint64_t call = 0; call < 2000; ++call) {
    for (uint64_t k = 0; k < 6; ++k) {
      truth.push_back(k == 2 ? 100 + call / 100 : k);
      decoded.push_back(k == 2 ? 100 + call / 100 + (call % 100 < 2 ? uint64_t{1} : 0) : k);
    }
  }
  EXPECT_GE(checked_count(decoded, truth, aligned(decoded, truth)), truth.size() * 94 / 100);
}

// One instruction more, or one less, on either side of a loop's middle: nothing else differs.
TEST(FlowAlign, OneInstructionMoreOrLessInALoop) {
  Keys truth;
  for (uint64_t i = 0; i < 24'000; ++i) truth.push_back(i % 6);
  for (const size_t at : {size_t{12'001}, size_t{12'004}}) {
    Keys more = truth, less = truth;
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(at), 99);
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(at));
    EXPECT_EQ(checked_count(more, truth, aligned(more, truth)), truth.size());
    EXPECT_EQ(checked_count(truth, more, aligned(truth, more)), truth.size());
    EXPECT_EQ(checked_count(less, truth, aligned(less, truth)), less.size());
    EXPECT_EQ(checked_count(truth, less, aligned(truth, less)), less.size());
  }
}

// Less than a stretch is equal between two differences.
TEST(FlowAlign, FewKeysBetweenDifferencesMatch) {
  const Keys flow = {1, 2, 3, 4, 5, 6, 7, 8, 70, 21, 22, 23, 24, 31, 32, 33, 34, 35, 36, 37, 38};
  const Keys other = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 21, 22, 23, 24, 14, 15, 16, 31, 32, 33, 34, 35, 36, 37, 38};
  EXPECT_EQ(checked_count(flow, other, aligned(flow, other)), flow.size() - 1);
}

TEST(FlowAlign, NothingInCommonIsNothing) {
  Keys a(1000), b(1000);
  for (size_t i = 0; i < a.size(); ++i) a[i] = i % 7, b[i] = 100 + i % 7;
  EXPECT_EQ(checked_count(a, b, aligned(a, b)), 0U);
}

using Places = std::pair<size_t, size_t>;

TEST(MissingPlaces, AnyRoundOfALoopMayBeTheOneThatIsMissing) {
  const Keys other = {1, 2, 3, 2, 3, 2, 3, 4}, flow = {1, 2, 3, 2, 3, 4};
  EXPECT_EQ(places_of_missing(other, std::vector<uint32_t>{0, 1, 2, 3, 4, 7}, {5, 5, 7}), Places(1, 5));
  EXPECT_EQ(places_of_missing(other, std::vector<uint32_t>{0, 3, 4, 5, 6, 7}, {1, 1, 3}), Places(1, 5));
  EXPECT_EQ(places_of_missing(other, std::vector<uint32_t>{0, 1, 2, 5, 6, 7}, {3, 3, 5}), Places(1, 5));
}

TEST(MissingPlaces, WhatIsNoLoopHasOnePlace) {
  const Keys other = {1, 2, 3, 4, 5};
  EXPECT_EQ(places_of_missing(other, std::vector<uint32_t>{0, 1, 3, 4}, {2, 2, 3}), Places(2, 2));
  EXPECT_EQ(places_of_missing(other, std::vector<uint32_t>{0, 1, 2}, {3, 3, 5}), Places(3, 3));
  EXPECT_EQ(places_of_missing(other, std::vector<uint32_t>{}, {0, 0, 5}), Places(0, 0));
}

// A match beyond another difference does not continue the run.
TEST(MissingPlaces, TheLoopEndsAtAnotherDifference) {
  const Keys other = {2, 9, 2, 2, 2};
  EXPECT_EQ(places_of_missing(other, std::vector<uint32_t>{0, 2, 4}, {2, 3, 4}), Places(1, 3));
}

using PlacesOfPieces = std::optional<std::vector<size_t>>;

TEST(PlacePieces, EachIsWholeAndAfterTheOneBefore) {
  const Keys flow = {1, 1, 2, 9, 9, 1, 2, 3}, other = {1, 1, 1, 2, 1, 2, 1, 2, 3};
  EXPECT_EQ(place_pieces(flow, std::vector<FlowPiece>{{0, 3}, {5, 8}}, other), PlacesOfPieces({1, 6}));
  EXPECT_EQ(place_pieces(flow, std::vector<FlowPiece>{{5, 8}, {0, 3}}, other), PlacesOfPieces());
  EXPECT_EQ(place_pieces(flow, std::vector<FlowPiece>{{2, 4}}, other), PlacesOfPieces());
  EXPECT_EQ(place_pieces(flow, std::vector<FlowPiece>{{1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}}, other), PlacesOfPieces({0, 1, 2, 4, 6}));
  EXPECT_EQ(place_pieces(flow, std::vector<FlowPiece>{}, other), PlacesOfPieces(std::vector<size_t>{}));
}

// Against std::search, in keys that repeat themselves.
TEST(PlacePieces, FindsWhatASearchFinds) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Keys other(40), flow(12);
    for (uint64_t& key : other) key = random() % 2;
    for (uint64_t& key : flow) key = random() % 2;
    const size_t cut = 1 + random() % 11;
    const auto first = std::search(other.begin(), other.end(), flow.begin(), flow.begin() + static_cast<std::ptrdiff_t>(cut));
    const auto rest = first == other.end() ? first
                                           : std::search(first + static_cast<std::ptrdiff_t>(cut), other.end(),
                                                         flow.begin() + static_cast<std::ptrdiff_t>(cut), flow.end());
    const bool there = first != other.end() && rest != other.end();
    const auto index = [&](auto at) { return static_cast<size_t>(at - other.begin()); };
    EXPECT_EQ(place_pieces(flow, std::vector<FlowPiece>{{0, cut}, {cut, 12}}, other),
              there ? PlacesOfPieces({index(first), index(rest)}) : PlacesOfPieces());
  }
}

}  // namespace
}  // namespace ptd::cli
