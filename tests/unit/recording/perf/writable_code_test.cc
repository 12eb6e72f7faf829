// Sideband fold: private mappings of files that were writable and executable. The program may have changed that code.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "image/source/jitdump.h"
#include "recording/perf/mapping_ranges.h"
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

constexpr uint64_t kOwnText = 0x400000;
constexpr uint32_t kReadExec = PROT_READ | PROT_EXEC, kAll = kReadExec | PROT_WRITE;

class WritableCodeFold : public Fold {
 protected:
  WritableCodeFold() { comm(10, 10, "one", true, 1); }
  void protect(uint32_t prot, uint64_t time, int32_t pid = 10, const std::string& path = "/bin/one", uint32_t flags = MAP_PRIVATE) {
    perfio::MmapRecord record;
    record.pid = record.tid = pid;
    record.addr = kOwnText;
    record.size_bytes = 4096;
    record.path = path;
    record.prot = prot;
    record.flags = flags;
    feed(record, time, pid, pid);
  }
  bool assumed(uint64_t time, int32_t pid = 10) {
    const SpaceId space = data_->contexts.at_thread(pid, TimeNs{time}).space;
    const SectionId section = data_->timeline.section_at(space, Ip{kOwnText}, TimeNs{time});
    EXPECT_NE(section, kNoSection);
    return section != kNoSection && data_->timeline.section(section).assumed;
  }
  int64_t findings() {
    return std::ranges::count_if(data_->timeline.findings(), [](const Finding& finding) {
      return finding.kind == FindingKind::file_changed && finding.what.find("could write to its code") != std::string::npos;
    });
  }
};

TEST_F(WritableCodeFold, IsAssumedFromThenOn) {
  protect(kReadExec, 10);
  protect(kAll, 20);
  protect(kReadExec, 30);
  finish();
  EXPECT_FALSE(assumed(15));
  EXPECT_TRUE(assumed(25));
  EXPECT_TRUE(assumed(35)) << "the change is still there";
  EXPECT_EQ(findings(), 1) << "one for a file";
  EXPECT_NE(data_->timeline.findings()[0].what.find("/bin/one"), std::string::npos);
  EXPECT_EQ(user_byte(10, kOwnText + kCode, 35), 0x55);
}

// A library that is unloaded and loaded again has the same record twice.
TEST_F(WritableCodeFold, ARepeatedRecordIsNoFinding) {
  protect(kReadExec, 10);
  protect(kReadExec, 20);
  protect(kAll, 30, 10, "/bin/one", MAP_SHARED);
  finish();
  EXPECT_FALSE(assumed(35));
  EXPECT_TRUE(data_->timeline.findings().empty());
}

TEST_F(WritableCodeFold, EndsWithAnotherMapping) {
  protect(kAll, 10);
  protect(kReadExec, 20, 10, "/bin/two");
  protect(kReadExec, 30);
  protect(kAll, 40);
  map(10, kOwnText, "//anon", 50);
  map(10, kOwnText, "/bin/two", 60);
  finish();
  EXPECT_TRUE(assumed(15));
  EXPECT_FALSE(assumed(25));
  EXPECT_FALSE(assumed(35));
  EXPECT_TRUE(assumed(45));
  EXPECT_FALSE(assumed(65));
}

TEST_F(WritableCodeFold, IsInherited) {
  protect(kAll, 10);
  fork(10, 11, 11, 20);
  protect(kReadExec, 30, 11);
  fork(11, 12, 12, 40);
  comm(11, 11, "one", true, 50);
  protect(kReadExec, 50, 11);
  finish();
  EXPECT_TRUE(assumed(25, 11));
  EXPECT_TRUE(assumed(35, 11));
  EXPECT_TRUE(assumed(45, 12));
  EXPECT_FALSE(assumed(55, 11)) << "a new program";
}

// It has the changed code.
TEST_F(WritableCodeFold, ACompleteJitdumpIsTrusted) {
  dir_.write("r.jit/0/jit-10.dump", "");
  protect(kAll, 10);
  map(10, kCompleteJitdumpAddress, "/r.jit/0/jit-10.dump", 10);
  finish();
  EXPECT_FALSE(assumed(15));
  EXPECT_EQ(findings(), 0);
}

TEST(WritableCode, LikeAnArrayOfContents) {
  constexpr uint64_t kModelled = 120, kMostSize = 20;
  std::mt19937 random(3);
  const auto below = [&random](uint64_t limit) { return uint64_t{random()} % limit; };
  WritableCode ranges;
  std::vector<std::array<uint64_t, kModelled + kMostSize>> model(1);  // content that was writable
  for (int i = 0; i < 20'000; ++i) {
    const auto space = static_cast<uint32_t>(below(model.size()));
    if (i % 100 == 99) {
      model.push_back(model[space]);
      ranges.fork(SpaceId{space}, SpaceId{static_cast<uint32_t>(model.size() - 1)});
      continue;
    }
    const uint64_t first = below(kModelled), size = 1 + below(kMostSize), content = below(3);
    const bool writable = content != 0 && below(4) == 0;
    uint64_t at = first;
    for (const WritableCode::Piece& piece : ranges.add(SpaceId{space}, first, size, content, writable)) {
      ASSERT_EQ(piece.first, at);
      for (; at < piece.first + piece.size_bytes; ++at) {
        uint64_t& known = model[space][at];
        ASSERT_EQ(piece.was_writable, writable || (content != 0 && known == content)) << i;
        known = piece.was_writable ? content : 0;
      }
    }
    ASSERT_EQ(at, first + size);
  }
}

TEST(WritableCode, HasFewPieces) {
  WritableCode ranges;
  for (uint64_t i = 0; i < 1000; ++i) (void)ranges.add(SpaceId{1}, 16 * i, 8, 1, true);
  EXPECT_EQ(ranges.add(SpaceId{1}, 0, 16 * 7, 1, false).size(), 14U);
  const auto pieces = ranges.add(SpaceId{1}, 0, 16 * 1000, 1, false);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_TRUE(pieces[0].was_writable);
}

}  // namespace
}  // namespace ptd
