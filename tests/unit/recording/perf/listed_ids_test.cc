// Sideband fold: build ids that the header lists by path, read when the recording ended, for files that were replaced before.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <string>

#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

constexpr uint64_t kFirst = 0x400000, kSecond = 0x500000;

/// The program /.../p: `old` was mapped, then `now` was renamed over it and mapped. The header has the build id of the latter.
class ListedIds : public Fold {
 protected:
  ListedIds() {
    options_.symfs.clear();
    image_test::SmallElf elf;
    elf.code = image_test::bytes_of({0x55, 0xc3});
    elf.build_id.assign(20, std::byte{1});
    old_inode_ = inode_of(dir_.write("old", elf.bytes()));
    elf.code = image_test::bytes_of({0x90, 0xc3});
    elf.build_id.assign(20, std::byte{2});
    inode_ = inode_of(dir_.write("now", elf.bytes()));
    path_ = dir_.path() + "/p";
    std::filesystem::rename(dir_.path() + "/now", path_);
    features_.build_ids.push_back({path_, std::string(20, '\2')});
  }
  static uint64_t inode_of(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_ino;
  }
  void open(bool same_host, int64_t recorded_at_ns) {
    start();
    image_ = std::make_unique<ImageBuild>(options_, recorded_at_ns);
    image_->source.set_same_host(same_host);
    fold_ = std::make_unique<SidebandFold>(options_, *image_, *data_);
  }
  void map_file(uint64_t address, uint64_t inode, uint64_t time, uint64_t generation = 0, const std::string& build_id = {}) {
    perfio::MmapRecord record;
    record.pid = record.tid = 10;
    record.addr = address;
    record.size_bytes = 4096;
    record.path = path_;
    record.inode = inode;
    record.inode_generation = generation;
    record.build_id = build_id;
    feed(record, time, 10, 10);
  }
  int code(uint64_t address) { return user_byte(10, address + kCode, 3000); }
  bool is_assumed(uint64_t address) {
    const SpaceId space = data_->contexts.at_thread(10, TimeNs{3000}).space;
    return data_->timeline.section(data_->timeline.section_at(space, Ip{address}, TimeNs{3000})).assumed;
  }
  int64_t count(const char* text) const {
    return std::ranges::count_if(data_->timeline.findings(), [&](const Finding& finding) {
      return finding.kind == FindingKind::file_changed && finding.what.find(path_) != std::string::npos &&
             finding.what.find(text) != std::string::npos;
    });
  }
  static int64_t later_ns() { return (int64_t{::time(nullptr)} + 100) * 1'000'000'000; }

  std::string path_;
  uint64_t old_inode_ = 0, inode_ = 0;
};

TEST_F(ListedIds, AreNotThoseOfAFileWithAnotherInode) {
  open(true, later_ns());
  comm(10, 10, "p", true, 100);
  map_file(kFirst, old_inode_, 1000);
  map_file(kSecond, inode_, 2000);
  finish();
  EXPECT_EQ(code(kFirst), -1);
  EXPECT_EQ(count("is another file than the recorded one"), 1);
  EXPECT_EQ(code(kSecond), 0x90);
  EXPECT_FALSE(is_assumed(kSecond));
}

// The program was replaced while it ran, and not mapped again.
TEST_F(ListedIds, OfOneMappingAreCheckedToo) {
  open(true, later_ns());
  comm(10, 10, "p", true, 100);
  map_file(kFirst, old_inode_, 1000);
  finish();
  EXPECT_EQ(code(kFirst), -1);
  EXPECT_EQ(count("is another file than the recorded one"), 1);
}

// When the recording was written is not known: the file may have come later, with the same content.
TEST_F(ListedIds, AreDoubtfulIfTheFileMayHaveComeLater) {
  open(true, 0);
  comm(10, 10, "p", true, 100);
  map_file(kFirst, old_inode_, 1000);
  finish();
  EXPECT_EQ(code(kFirst), 0x90);
  EXPECT_TRUE(is_assumed(kFirst));
  EXPECT_EQ(count("has this build id and another inode"), 1);
}

// A program that was installed again after the recording has the build id of the recorded one.
TEST_F(ListedIds, ProveAFileThatWasMadeLater) {
  struct statx info {};
  if (::statx(AT_FDCWD, path_.c_str(), 0, STATX_BTIME, &info) != 0 || (info.stx_mask & STATX_BTIME) == 0)
    GTEST_SKIP() << "no times of creation";
  const std::array<timespec, 2> long_ago{};
  ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), long_ago.data(), 0), 0);
  open(true, 1'000'000'000);
  comm(10, 10, "p", true, 100);
  map_file(kFirst, old_inode_, 1000);
  finish();
  EXPECT_EQ(code(kFirst), 0x90);
  EXPECT_FALSE(is_assumed(kFirst));
  EXPECT_TRUE(data_->timeline.findings().empty());
}

// On another machine, only the records tell that there were two files. Inode numbers are used again, with another generation.
TEST_F(ListedIds, OfAPathWithTwoFilesAreDoubtfulForTheOlder) {
  for (const bool reused : {false, true}) {
    open(false, later_ns());
    comm(10, 10, "p", true, 100);
    map_file(kFirst, reused ? inode_ : old_inode_, 1000, 7);
    map_file(kSecond, inode_, 2000, 8);
    finish();
    EXPECT_EQ(code(kFirst), 0x90) << reused;
    EXPECT_TRUE(is_assumed(kFirst)) << reused;
    EXPECT_EQ(count("was mapped under this path later"), 1) << reused;
    EXPECT_FALSE(is_assumed(kSecond)) << reused;
  }
}

TEST_F(ListedIds, AreNotUsedIfAPathHasSeveral) {
  features_.build_ids.push_back({path_, std::string(20, '\1')});
  open(false, later_ns());
  comm(10, 10, "p", true, 100);
  map_file(kFirst, old_inode_, 1000);
  finish();
  EXPECT_EQ(code(kFirst), -1);
  EXPECT_EQ(count("several build ids"), 1);
}

// The kernel read that of an MMAP2 record from the mapped file itself.
TEST_F(ListedIds, DoNotReplaceThoseOfRecords) {
  open(true, later_ns());
  comm(10, 10, "p", true, 100);
  map_file(kFirst, 0, 1000, 0, std::string(20, '\1'));
  map_file(kSecond, 0, 2000, 0, std::string(20, '\2'));
  finish();
  EXPECT_EQ(code(kFirst), -1);
  EXPECT_EQ(code(kSecond), 0x90);
  EXPECT_FALSE(is_assumed(kSecond));
}

}  // namespace
}  // namespace ptd
