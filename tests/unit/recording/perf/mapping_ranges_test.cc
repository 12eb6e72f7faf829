// Ranges of mapped memory against models that keep a value for each address, and what mappings and forks may cost.
#include "recording/perf/mapping_ranges.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/peak_memory.h"
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

constexpr uint64_t kAddresses = 120, kMostBytes = 20;

TEST(AnonymousRanges, LikeASetOfAddressesPerSpace) {
  std::mt19937 random(1);
  const auto below = [&random](uint64_t limit) { return uint64_t{random()} % limit; };
  AnonymousRanges ranges;
  std::vector<std::array<bool, kAddresses + kMostBytes>> model(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto space = static_cast<uint32_t>(below(model.size()));
    const uint64_t first = below(kAddresses), size = 1 + below(kMostBytes);
    if (i % 100 == 99) {
      model.push_back(model[space]);
      ranges.fork(SpaceId{space}, SpaceId{static_cast<uint32_t>(model.size() - 1)});
    } else if (i % 3 == 0) {
      ranges.replace(SpaceId{space}, first, size);
      for (uint64_t at = first; at < first + size; ++at) model[space][at] = false;
    } else {
      uint64_t at = first;
      for (const AnonymousRanges::Piece& piece : ranges.add(SpaceId{space}, first, size)) {
        ASSERT_EQ(piece.first, at);
        for (; at < piece.first + piece.size_bytes; ++at) ASSERT_EQ(std::exchange(model[space][at], true), piece.again) << i;
      }
      ASSERT_EQ(at, first + size);
    }
  }
}

TEST(SharedRanges, ALongListInOrderStaysBalanced) {
  SharedRanges ranges;
  constexpr uint64_t kCount = 50'000;  // as deep as that, recursion overflows the stack
  for (uint64_t i = 0; i < kCount; ++i) ranges.insert({2 * i, 2 * i + 1});
  const SharedRanges before = ranges;
  for (uint64_t i = 0; i < kCount - 1; ++i) ranges.erase(2 * i);
  EXPECT_EQ(ranges.after(0)->first, 2 * (kCount - 1));
  EXPECT_FALSE(ranges.at_or_before(2 * (kCount - 1) - 1));
  EXPECT_EQ(before.after(6)->first, 8U);
  EXPECT_EQ(before.at_or_before(7)->first, 6U);
}

TEST(AnonymousRanges, ForksShareMemory) {
  AnonymousRanges ranges;
  constexpr uint32_t kRanges = 4000, kForks = 20'000;
  for (uint64_t i = 0; i < kRanges; ++i) (void)ranges.add(SpaceId{0}, i * 0x2000, 0x1000);
  test::reset_peak();
  const long before = test::status_mib("VmHWM");
  for (uint32_t child = 1; child <= kForks; ++child) {
    ranges.fork(SpaceId{0}, SpaceId{child});
    EXPECT_FALSE(ranges.add(SpaceId{child}, kRanges * 0x2000, 0x1000)[0].again);  // each child changes, too
  }
  EXPECT_TRUE(ranges.add(SpaceId{kForks}, 0, 0x1000)[0].again);
  EXPECT_LT(test::status_mib("VmHWM") - before, 200);  // with a copy for each: 5 GB
}

// Run-times change the protection of their code all the time, and the kernel reports each change.
TEST_F(Fold, ManyMappingsOfAnonymousMemoryTakeLittleTime) {
  constexpr uint64_t kMappings = 60'000, kPages = 30'000;
  map(10, 0x400000, "/bin/one", 1);
  for (uint64_t i = 0; i < kMappings; ++i) map(10, 0x10000000 + i % kPages * 0x2000, "//anon", 2 + i);
  map(10, 0x400000, "//anon", 2 + kMappings);
  const auto begin = std::chrono::steady_clock::now();
  finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 5);  // with a search through all mappings for each: 10 s
  ASSERT_EQ(data_->warnings.size(), 1U);
  EXPECT_NE(data_->warnings[0].find("mapped anonymous memory over the text of /bin/one"), std::string::npos);
}

// A build of a large program has tens of thousands of processes, and all map the same libraries.
TEST_F(Fold, MappingsOfManyProcessesTakeLittleMemory) {
  constexpr int32_t kProcesses = 30'000, kEach = 8, kFiles = 400;
  constexpr long kMostBytes = 350;  // for each mapping; with a copy of its texts, and ranges twice: 840
  test::reset_peak();
  const long before = test::status_mib("VmHWM");
  for (int32_t i = 0; i < kProcesses * kEach; ++i)
    map(1 + i / kEach, 0x7f0000000000 + static_cast<uint64_t>(i) * 0x1000,
        "/usr/lib/x86_64-linux-gnu/lib" + std::to_string(i % kFiles) + ".so", 1 + static_cast<uint64_t>(i));
  finish();
  EXPECT_EQ(data_->timeline.section_count(), static_cast<size_t>(kProcesses) * kEach);
  EXPECT_LT(((test::status_mib("VmHWM") - before) << 20) / (kProcesses * kEach), kMostBytes);
}

TEST_F(Fold, ForksDoNotCopyALongName) {
  comm(10, 10, std::string(60'000, 'x'), true, 1);
  fork(10, 11, 11, 2);
  EXPECT_EQ(data_->thread_names[11], std::string(64, 'x'));
  EXPECT_EQ(data_->comms[11].back().second.size(), 64U);
}

TEST(LatestMappings, LikeASearchBackward) {
  using Kind = LatestMappings::Kind;
  EXPECT_EQ(LatestMappings::kind_of("//anon"), Kind::anonymous);
  EXPECT_EQ(LatestMappings::kind_of("/anon_hugepage (deleted)"), Kind::huge_pages);
  EXPECT_EQ(LatestMappings::kind_of("[heap]"), Kind::other);
  struct Mapping {
    uint32_t space;
    uint64_t first, size;
    Kind kind;
  };
  std::mt19937 random(2);
  const auto below = [&random](uint64_t limit) { return uint64_t{random()} % limit; };
  for (int round = 0; round < 50; ++round) {
    LatestMappings latest;
    std::vector<Mapping> all;
    const uint64_t base = round % 2 == 0 ? 0 : ~uint64_t{0} - kAddresses;  // up to the end of the address space
    while (all.size() < 100) {
      const Mapping& made = all.emplace_back(
          Mapping{static_cast<uint32_t>(below(2)), base + below(kAddresses), below(kMostBytes), static_cast<Kind>(below(3))});
      latest.add(SpaceId{made.space}, Ip{made.first}, made.size, made.kind, all.size() - 1);
      const Mapping asked{static_cast<uint32_t>(below(2)), base + below(kAddresses), 0, static_cast<Kind>(below(3))};
      std::optional<size_t> want;
      for (size_t i = all.size(); i-- > 0 && !want;) {
        const Mapping& each = all[i];
        if (each.space == asked.space && each.kind != asked.kind && asked.first >= each.first && asked.first - each.first < each.size)
          want = i;
      }
      ASSERT_EQ(latest.latest_but(SpaceId{asked.space}, Ip{asked.first}, asked.kind), want);
    }
  }
}

TEST(MappedFiles, OneThatWasThereBefore) {
  MappedFiles files;
  constexpr SpaceId kParent{1}, kChild{2};
  const auto compare = [](uint64_t number) {
    return number % 2 != 0 ? MappedBefore::other : number == 12 ? MappedBefore::now_writable : MappedBefore::same;
  };
  const auto add = [&](SpaceId space, uint64_t first, uint64_t size, size_t number) {
    std::string text;
    for (const MappedPiece& piece : files.add(space, first, size, number, compare))
      text += std::to_string(piece.first) + "+" + std::to_string(piece.size_bytes) + (piece.now_writable ? " writable" : "") +
              (piece.again ? " again " : " ");
    return text;
  };
  EXPECT_EQ(add(kParent, 100, 50, 2), "100+50 ");
  EXPECT_EQ(add(kParent, 110, 20, 4), "110+20 again ") << "a part";
  EXPECT_EQ(add(kParent, 100, 50, 6), "100+50 again ") << "three parts";
  EXPECT_EQ(add(kParent, 90, 20, 8), "90+10 100+10 again ") << "more than was there";
  files.fork(kParent, kChild);
  EXPECT_EQ(add(kParent, 120, 10, 9), "120+10 again ");
  EXPECT_EQ(add(kParent, 110, 30, 10), "110+10 again 120+10 130+10 again ") << "another file in between";
  EXPECT_EQ(add(kChild, 110, 30, 12), "110+30 again ");
  files.replace(kChild, 120, 1);
  EXPECT_EQ(add(kChild, 110, 30, 14), "110+10 writable again 120+1 121+19 writable again ");
}

}  // namespace
}  // namespace ptd
