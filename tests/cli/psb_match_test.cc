// PsbMatcher: PSBs of a trace that lost, gained or changed bytes.
#include "cli/verify/psb_match.h"

#include <gtest/gtest.h>

#include <random>

namespace ptd::cli {
namespace {

/// What the damage left of a PSB of the truth.
struct Damaged {
  PsbMark mark;
  std::optional<size_t> want;  ///< its index in the truth
};

std::vector<PsbMark> truth_of(std::mt19937& random, size_t count) {
  std::vector<PsbMark> truth;
  PsbMark mark{0, 1'000'000};
  for (size_t i = 0; i < count; ++i) {
    truth.push_back(mark);
    mark.offset_bytes += 2048 + random() % 3;  // sizes of segments repeat
    *mark.tsc += 1 + random() % 1000;
  }
  return truth;
}

std::vector<Damaged> undamaged(const std::vector<PsbMark>& truth) {
  std::vector<Damaged> all;
  for (size_t i = 0; i < truth.size(); ++i) all.push_back({truth[i], i});
  return all;
}

void shift(std::vector<Damaged>& all, size_t from, int64_t bytes) {
  for (size_t i = from; i < all.size(); ++i) all[i].mark.offset_bytes += static_cast<uint64_t>(bytes);
}

void check(const std::vector<PsbMark>& truth, const std::vector<Damaged>& all) {
  PsbMatcher matcher(truth);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(matcher.find(all[i].mark), all[i].want) << i;
}

TEST(PsbMatcher, Undamaged) {
  std::mt19937 random(1);
  const std::vector<PsbMark> truth = truth_of(random, 50);
  check(truth, undamaged(truth));
}

TEST(PsbMatcher, BytesRemovedAndInserted) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 50; ++trial) {
    const std::vector<PsbMark> truth = truth_of(random, 50);
    std::vector<Damaged> all = undamaged(truth);
    for (int fault = 0; fault < 3; ++fault) shift(all, 1 + random() % 49, static_cast<int64_t>(random() % 5000) - 1000);
    check(truth, all);
  }
}

TEST(PsbMatcher, SegmentsRemovedDoubledAndSwapped) {
  std::mt19937 random(3);
  const std::vector<PsbMark> truth = truth_of(random, 20);
  const auto size = [&](size_t i) { return static_cast<int64_t>(truth[i + 1].offset_bytes - truth[i].offset_bytes); };
  std::vector<Damaged> removed = undamaged(truth);
  shift(removed, 6, -size(5));
  removed.erase(removed.begin() + 5);
  check(truth, removed);
  std::vector<Damaged> doubled = undamaged(truth);
  shift(doubled, 6, size(5));
  doubled.insert(doubled.begin() + 6, {{truth[6].offset_bytes, truth[5].tsc}, std::nullopt});
  check(truth, doubled);
  std::vector<Damaged> swapped = undamaged(truth);
  std::swap(swapped[5].mark.tsc, swapped[6].mark.tsc);
  swapped[6].mark.offset_bytes = truth[5].offset_bytes + static_cast<uint64_t>(size(6));
  swapped[5].want = 6;
  swapped[6].want = std::nullopt;  // out of order
  check(truth, swapped);
}

TEST(PsbMatcher, ADamagedOrAbsentTimeIsFoundByItsDistance) {
  std::mt19937 random(4);
  const std::vector<PsbMark> truth = truth_of(random, 20);
  std::vector<Damaged> all = undamaged(truth);
  shift(all, 4, -64);
  all[7].mark.tsc = *all[7].mark.tsc ^ (uint64_t{1} << 40);
  all[9].mark.tsc.reset();
  check(truth, all);
  std::vector<Damaged> timeless = undamaged(truth);
  for (Damaged& each : timeless) each.mark.tsc.reset();
  check(truth, timeless);
}

// The truth has 64 bits of the counter, a packet 56. Several PSBs may have one time.
TEST(PsbMatcher, WidthAndRepeatedTimes) {
  std::vector<PsbMark> truth;
  for (uint64_t i = 0; i < 10; ++i) truth.push_back({i * 100, (uint64_t{7} << 56) + i / 3});
  std::vector<Damaged> all = undamaged(truth);
  for (Damaged& each : all) *each.mark.tsc &= (uint64_t{1} << 56) - 1;
  check(truth, all);
}

}  // namespace
}  // namespace ptd::cli
