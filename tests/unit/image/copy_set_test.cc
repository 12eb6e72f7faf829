// CopySet: which parts of overlapping copies are the base.
#include "image/build/copy_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/image/timeline_support.h"

namespace ptd {
namespace {

constexpr uint64_t kBase = 0xffffffff81000000;

DatedCopy copy_at(uint64_t ip, size_t size) {
  DatedCopy copy;
  copy.space = kKernelSpace;
  copy.ip = Ip{ip};
  copy.code = timeline_test::owned(std::vector<std::byte>(size));
  return copy;
}

// Compares with the definition, byte by byte: a byte of a copy is base unless an earlier copy has it.
TEST(CopySet, EachByteIsTheBaseOfTheFirstCopyThatHasIt) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    CopySet set;
    std::set<uint64_t> taken;
    std::vector<std::vector<uint64_t>> want;
    for (uint64_t count = 1 + random() % 12; count > 0; --count) {
      const uint64_t ip = kBase + random() % 60;
      const size_t size = 1 + random() % 30;
      set.add(copy_at(ip, size));
      std::vector<uint64_t>& own = want.emplace_back();
      for (uint64_t at = ip; at < ip + size; ++at) {
        if (taken.insert(at).second) own.push_back(at);
      }
    }
    const auto ranges = set.base_ranges();
    ASSERT_EQ(ranges.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      std::vector<uint64_t> got;
      for (const AddressRange range : ranges[i]) {
        for (uint64_t at = range.first; at <= range.last; ++at) got.push_back(at);
      }
      EXPECT_EQ(got, want[i]) << "round " << round << ", copy " << i;
    }
  }
}

// Every byte differs: a small compressed bundle can name gigabytes of such copies.
TEST(CopySet, DifferencesAreLimitedAndTheLimitIsReported) {
  constexpr std::string_view kLimit = "further differences are not used";
  for (const bool many : {false, true}) {
    const size_t size = many ? kMaxCopyDifferences + 1000 : 1000;
    TimelineBuilder builder;
    DatedCopy before = copy_at(kBase, size), after = copy_at(kBase, size);
    before.taken = {TimeNs{1}, TimeNs{1}};
    after.taken = {TimeNs{9}, TimeNs{9}};
    after.code = timeline_test::filled(size, 0xcc);
    CopySet set;
    set.add(before);
    set.add(after);
    EXPECT_EQ(set.differences({}).edits.size(), std::min(size, kMaxCopyDifferences));
    builder.add_copy(before);
    builder.add_copy(after);
    const Timeline timeline = builder.build();
    const auto& findings = timeline.findings();
    EXPECT_EQ(std::any_of(findings.begin(), findings.end(),
                          [&](const Finding& finding) { return finding.what.find(kLimit) != std::string::npos; }),
              many);
  }
}

// Segments of a forged kcore can repeat one hole of a file.
TEST(CopySet, TheBytesThatAreComparedAreLimited) {
  CopySet set;
  for (const bool later : {false, true}) {
    for (uint64_t i = 0; i < 4; ++i) {
      DatedCopy copy = copy_at(kBase + i * 100, 100);
      if (later) copy.code = timeline_test::filled(100, 0xcc);
      set.add(copy);
    }
  }
  EXPECT_FALSE(set.differences({}, 400).not_compared);
  const CopyDifferences some = set.differences({}, 250);
  ASSERT_TRUE(some.not_compared);
  EXPECT_EQ(some.not_compared->second, Ip{kBase + 250});
  EXPECT_EQ(some.edits.back().ip.value + some.edits.back().new_bytes.size(), kBase + 250);
}

TEST(CopySet, MoreThanTheLimitIsNotComparedAndReported) {
  constexpr uint64_t kSegments = 33;
  const CodeBytes segment = timeline_test::filled(kMaxComparedBytes / (kSegments - 1), 0);
  TimelineBuilder builder;
  for (const uint64_t time : {1, 9}) {
    for (uint64_t i = 0; i < kSegments; ++i) {
      DatedCopy copy;
      copy.space = kKernelSpace;
      copy.ip = Ip{0xffff800000000000 + i * segment.bytes.size()};
      copy.code = segment;
      copy.taken = {TimeNs{time}, TimeNs{time}};
      builder.add_copy(copy);
    }
  }
  const Timeline timeline = builder.build();
  ASSERT_EQ(timeline.findings().size(), 1U);
  EXPECT_EQ(timeline.findings()[0].kind, FindingKind::section_overlap);
  EXPECT_EQ(timeline.findings()[0].ip, Ip{0xffff800000000000 + kMaxComparedBytes});
}

TEST(CopySet, ACopyAtTheEndOfMemoryIsCoveredToo) {
  CopySet set;
  set.add(copy_at(~uint64_t{0} - 15, 16));
  set.add(copy_at(~uint64_t{0} - 31, 32));
  const auto ranges = set.base_ranges();
  ASSERT_EQ(ranges[1].size(), 1U);
  EXPECT_EQ(ranges[1][0].first, ~uint64_t{0} - 31);
  EXPECT_EQ(ranges[1][0].last, ~uint64_t{0} - 16);
}

}  // namespace
}  // namespace ptd
