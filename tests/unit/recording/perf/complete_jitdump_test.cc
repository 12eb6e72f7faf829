// Sideband fold: complete jitdumps, as `record --emulate` writes them, whose MMAP2 record is missing or wrong.
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <string>
#include <vector>

#include "image/source/jitdump.h"
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

using image_test::append;

constexpr uint64_t kProgram = 0x400000;

/// A process that starts at 1000 and changes an instruction of its text at 1500.
class CompleteJitdump : public Fold {
 protected:
  CompleteJitdump() {
    options_.path = dir_.path() + "/r.data";
    dir_.write("r.data.jit/0/jit-10.dump", dump(10, 1000));
    start();
    begin();
  }
  static std::vector<std::byte> dump(uint32_t pid, uint64_t begun) {
    std::vector<std::byte> out;
    for (const uint32_t word : {0x4A695444U, 1U, 40U, 62U, kCompleteJitdump, pid}) append(out, word);
    append(out, begun);
    append(out, uint64_t{1});  // times are ticks
    const std::string name = "code";
    append(out, uint32_t{0});
    append(out, static_cast<uint32_t>(16 + 40 + name.size() + 1 + 1));
    append(out, uint64_t{1500});
    for (const uint32_t id : {pid, pid}) append(out, id);
    for (const uint64_t number : {kProgram + kCode, kProgram + kCode, uint64_t{1}, uint64_t{1}}) append(out, number);
    for (const char c : name) out.push_back(static_cast<std::byte>(c));
    append(out, uint8_t{0});
    append(out, uint8_t{0x90});
    return out;
  }
  void begin() {
    data_->decoder.config.time.time_mult = 1;
    comm(9, 9, "other", true, 500);
  }
  void run() {
    comm(10, 10, "one", true, 1000);
    map(10, kProgram, "/bin/one", 1000);
  }
  void mark(int32_t pid, uint64_t time) {
    perfio::MmapRecord record;
    record.pid = record.tid = pid;
    record.addr = kCompleteJitdumpAddress;
    record.size_bytes = 4096;
    record.path = dir_.path() + "/r.data.jit/0/jit-10.dump";
    struct stat info {};
    ASSERT_EQ(::stat(record.path.c_str(), &info), 0);
    record.maj = major(info.st_dev);
    record.min = minor(info.st_dev);
    record.inode = info.st_ino;
    feed(record, time, pid, pid);
  }
  /// Returns the number of findings that name an MMAP2 record. The change is there, and marked if there are any.
  int64_t findings() {
    finish();
    EXPECT_EQ(user_byte(10, kProgram + kCode, 1400), 0x55);
    EXPECT_EQ(user_byte(10, kProgram + kCode, 1600), 0x90);
    const auto names = [](const Finding& finding) { return finding.what.find("MMAP2") != std::string::npos; };
    const int64_t count = std::ranges::count_if(data_->timeline.findings(), names);
    const SpaceId space = data_->contexts.at_thread(10, TimeNs{1600}).space;
    EXPECT_EQ(data_->timeline.section(data_->timeline.section_at(space, Ip{kProgram + kCode}, TimeNs{1600})).assumed, count != 0);
    return count;
  }
};

TEST_F(CompleteJitdump, ARightRecordIsNoFinding) {
  run();
  mark(10, 1001);
  EXPECT_EQ(findings(), 0);
}

TEST_F(CompleteJitdump, AMissingRecordIsAFinding) {
  run();
  EXPECT_EQ(findings(), 1);
}

TEST_F(CompleteJitdump, ARecordOfAnotherProcessIsAFinding) {
  run();
  mark(9, 1001);
  EXPECT_EQ(findings(), 1);
}

TEST_F(CompleteJitdump, ARecordBeforeItsProgramIsAFinding) {
  mark(10, 999);
  run();
  EXPECT_EQ(findings(), 1);
}

// Files of earlier recordings stay in the folder.
TEST_F(CompleteJitdump, FilesOfOtherRecordingsAreNotUsed) {
  dir_.write("r.data.jit/0/jit-10.dump", dump(10, 5000));
  dir_.write("r.data.jit/1/jit-11.dump", dump(11, 1000));
  run();
  finish();
  EXPECT_EQ(user_byte(10, kProgram + kCode, 1600), 0x55);
  EXPECT_TRUE(data_->timeline.findings().empty());
}

}  // namespace
}  // namespace ptd
