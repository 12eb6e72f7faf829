// Announced changes to the code of files, whose mappings are recorded again when their protection changes.
#include <initializer_list>
#include <memory>

#include "tests/unit/recording/announced/announced_support.h"

namespace ptd {
namespace {

using image_test::bytes_of;

/// Two libraries, the same in all mappings.
class TwoLibraries : public SavedInFolder {
 public:
  OfMapping of_mapping(const MappedPath& wanted) override {
    image_test::SmallElf elf;
    elf.code = wanted.path == "/lib/one.so" ? bytes_of({0x11, 0x21, 0x31, 0x41}) : bytes_of({0x51, 0x52, 0x53, 0x54});
    const auto file = MappedFile::open(dir_.write(wanted.path.substr(wanted.path.rfind('/') + 1), elf.bytes()));
    return {file.ok() ? *file : nullptr, false};
  }
};

class PatchedFile : public Announced {
 protected:
  static constexpr uint32_t kReadExec = PROT_READ | PROT_EXEC, kAll = kReadExec | PROT_WRITE;
  static constexpr uint64_t kBase = 0x20000, kAt = kBase + image_test::SmallElf::kCodeOffset;
  static constexpr SpaceId kChildSpace{3};

  PatchedFile() {
    image_.source.set_saved(std::make_shared<TwoLibraries>());
    map(kPid, kBase, "/lib/one.so", 50);
  }
  void protect(uint32_t prot, uint64_t time, int32_t pid = kPid) { map(pid, kBase, "/lib/one.so", time, 4096, prot); }
  void patch(uint64_t address, int before, int after, uint64_t time, int32_t pid = kPid) {
    say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .address = address, .code = bytes_of({before})}, time, pid);
    say({.kind = PTD_ANNOUNCE_PATCH, .address = address, .code = bytes_of({after})}, time + 5, pid);
  }
  void load(uint64_t address, std::initializer_list<int> code, uint64_t time) {
    say({.phase = PTD_ANNOUNCE_BEGIN, .address = address, .size = code.size()}, time);
    say({.address = address, .code = bytes_of(code)}, time + 5);
  }
  std::pair<Bytes8, CodeFlag> got(uint64_t address, uint64_t time, SpaceId space = SpaceId{1}) {
    const Got got = at(address, time, space);
    return {got.bytes, got.flags};
  }
  static std::pair<Bytes8, CodeFlag> certain(int byte) { return {{byte}, CodeFlag::none}; }
  static std::pair<Bytes8, CodeFlag> assumed(int byte) { return {{byte}, CodeFlag::assumed}; }
};

TEST_F(PatchedFile, ItsMappingIsRecordedAgain) {
  patch(kAt, 0x11, 0x12, 100);
  map(kPid, kBase, "/lib/one.so", 200);
  map(kPid, kBase, "/lib/one.so", 250);
  finish();
  EXPECT_EQ(got(kAt, 90), certain(0x11));
  EXPECT_EQ(got(kAt, 150), certain(0x12));
  EXPECT_EQ(got(kAt, 220), assumed(0x12));
  EXPECT_EQ(got(kAt, 300), assumed(0x12));
  EXPECT_EQ(got(kAt + 1, 300), certain(0x21));
  EXPECT_TRUE(data_.timeline.findings().empty());
}

// A later patch says what it found: what was written before, or the file.
TEST_F(PatchedFile, OldBytesTellWhatTheMappingKept) {
  patch(kAt, 0x11, 0x12, 100);
  patch(kAt + 2, 0x31, 0x32, 100);
  map(kPid, kBase, "/lib/one.so", 200);
  patch(kAt, 0x12, 0x13, 300);
  patch(kAt + 2, 0x31, 0x33, 300);
  map(kPid, kBase, "/lib/one.so", 303);  // before the second patch has ended
  finish();
  EXPECT_EQ(got(kAt, 250), certain(0x12));
  EXPECT_EQ(got(kAt + 2, 250), certain(0x31));
  EXPECT_EQ(got(kAt, 400), certain(0x13));
  EXPECT_EQ(got(kAt + 2, 400), certain(0x33));
  EXPECT_TRUE(data_.timeline.findings().empty());
}

// Code is written while its pages are writable and not executable. That they are executable again is recorded, and belongs to the patch.
TEST_F(PatchedFile, WhileItsPagesAreWritable) {
  patch(kAt, 0x11, 0x12, 100);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .address = kAt, .code = bytes_of({0x12})}, 300);
  protect(kReadExec, 304);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kAt, .code = bytes_of({0x13})}, 305);
  finish();
  EXPECT_EQ(got(kAt, 250), certain(0x12));
  EXPECT_EQ(got(kAt, 400), certain(0x13));
}

TEST_F(PatchedFile, InAChild) {
  patch(kAt, 0x11, 0x12, 100);
  feed(perfio::TaskRecord{40, kPid, 40, kPid, 150, false}, 150, kPid);
  map(40, kBase, "/lib/one.so", 200);
  patch(kAt + 1, 0x21, 0x22, 300);
  map(kPid, kBase, "/lib/one.so", 400);
  finish();
  EXPECT_EQ(got(kAt, 180, kChildSpace), certain(0x12));
  EXPECT_EQ(got(kAt, 250, kChildSpace), assumed(0x12));
  EXPECT_EQ(got(kAt + 1, 500, kChildSpace), certain(0x21));
  EXPECT_EQ(got(kAt, 350), certain(0x12));
  EXPECT_EQ(got(kAt, 450), assumed(0x12));
  EXPECT_EQ(got(kAt + 1, 450), assumed(0x22));
}

// A file, or memory, in place of the patched one ends the patch.
TEST_F(PatchedFile, AnotherMappingInItsPlace) {
  patch(kAt, 0x11, 0x12, 100);
  map(kPid, kBase, "/lib/two.so", 200);
  map(kPid, kBase, "/lib/two.so", 300);
  map(kPid, kBase, "/lib/one.so", 400);
  patch(kAt, 0x11, 0x13, 500);
  map(kPid, kBase, "//anon", 600);
  map(kPid, kBase, "/lib/one.so", 700);
  finish();
  EXPECT_EQ(got(kAt, 250), certain(0x51));
  EXPECT_EQ(got(kAt, 350), certain(0x51));
  EXPECT_EQ(got(kAt, 450), certain(0x11));
  EXPECT_EQ(got(kAt, 550), certain(0x13));
  EXPECT_EQ(got(kAt, 750), certain(0x11));
}

TEST_F(PatchedFile, CodeLoadedOverIt) {
  load(kAt, {0x61, 0xc3}, 100);
  patch(kAt + 1, 0xc3, 0x62, 150);
  map(kPid, kBase, "/lib/one.so", 200);
  load(kAt + 2, {0x71}, 300);
  map(kPid, kBase, "/lib/one.so", 303);  // before the load has ended
  say({.address = kAt + 3, .code = bytes_of({0x72})}, 400);
  finish();
  EXPECT_EQ(got(kAt, 150), certain(0x61));
  EXPECT_EQ(got(kAt + 1, 180), certain(0x62));
  EXPECT_EQ(got(kAt, 250), assumed(0x61));
  EXPECT_EQ(got(kAt + 1, 250), assumed(0x62));
  EXPECT_EQ(got(kAt + 2, 250), certain(0x31));
  EXPECT_EQ(got(kAt, 450), assumed(0x61));
  EXPECT_EQ(got(kAt + 2, 450), certain(0x71));
  EXPECT_EQ(got(kAt + 3, 390), certain(0x41));
  EXPECT_EQ(got(kAt + 3, 450), certain(0x72));
  EXPECT_TRUE(data_.timeline.findings().empty());
}

// A change of protection of more of the file, or of less.
TEST_F(PatchedFile, OtherPartsOfItAreMapped) {
  patch(kAt, 0x11, 0x12, 100);
  map(kPid, kBase, "/lib/one.so", 200, 8192);
  load(kAt + 2, {0x71}, 300);
  map(kPid, kBase, "/lib/one.so", 400);
  finish();
  EXPECT_EQ(got(kAt, 250), assumed(0x12));
  EXPECT_EQ(got(kAt + 1, 450), certain(0x21));
  EXPECT_EQ(got(kAt + 2, 350), certain(0x71));
  EXPECT_EQ(got(kAt + 2, 450), assumed(0x71));
}

// What is writable from then on is assumed, and what was announced stays.
TEST_F(PatchedFile, ItsMappingBecomesWritable) {
  patch(kAt, 0x11, 0x12, 100);
  load(kAt + 1, {0x61}, 100);
  protect(kReadExec, 200);
  patch(kAt + 2, 0x31, 0x32, 250);
  protect(kAll, 300);
  patch(kAt, 0x12, 0x13, 400);
  protect(kReadExec, 500);
  protect(kAll, 600);
  finish();
  EXPECT_EQ(got(kAt + 1, 150), certain(0x61));
  EXPECT_EQ(got(kAt + 2, 280), certain(0x32));
  EXPECT_EQ(got(kAt + 3, 280), certain(0x41));
  for (const uint64_t time : {350, 450, 550, 650}) {
    EXPECT_EQ(got(kAt + 1, time), assumed(0x61)) << time;
    EXPECT_EQ(got(kAt + 2, time), assumed(0x32)) << time;
    EXPECT_EQ(got(kAt + 3, time), assumed(0x41)) << time;
  }
  EXPECT_EQ(got(kAt, 350), certain(0x12)) << "the next patch found it";
  EXPECT_EQ(got(kAt, 450), certain(0x13));
  EXPECT_EQ(got(kAt, 550), assumed(0x13));
  EXPECT_EQ(got(kAt, 650), assumed(0x13));
}

TEST_F(PatchedFile, ItsMappingBecomesWritableInAChange) {
  load(kAt, {0x61, 0x71}, 100);
  say({.phase = PTD_ANNOUNCE_BEGIN, .address = kAt + 2, .size = 1}, 200);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .address = kAt + 1, .code = bytes_of({0x71})}, 200);
  protect(kAll, 210);
  protect(kReadExec, 220);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kAt + 1, .code = bytes_of({0x72})}, 230);
  say({.address = kAt + 2, .code = bytes_of({0x62})}, 230);
  finish();
  EXPECT_EQ(got(kAt, 250), assumed(0x61));
  EXPECT_EQ(got(kAt + 1, 250), certain(0x72));
  EXPECT_EQ(got(kAt + 2, 250), certain(0x62));
  EXPECT_EQ(got(kAt + 3, 250), assumed(0x41));
  EXPECT_EQ(data_.timeline.findings().size(), 1U) << "of the file that could be written to";
}

TEST_F(PatchedFile, ItsMappingBecomesWritableInAChild) {
  load(kAt, {0x61}, 100);
  feed(perfio::TaskRecord{40, kPid, 40, kPid, 150, false}, 150, kPid);
  protect(kAll, 200, 40);
  protect(kReadExec, 300, 40);
  finish();
  EXPECT_EQ(got(kAt, 180, kChildSpace), certain(0x61));
  EXPECT_EQ(got(kAt, 250, kChildSpace), assumed(0x61));
  EXPECT_EQ(got(kAt, 350, kChildSpace), assumed(0x61));
  EXPECT_EQ(got(kAt + 1, 350, kChildSpace), assumed(0x21));
  EXPECT_EQ(got(kAt, 350), certain(0x61));
}

TEST_F(PatchedFile, AnotherMappingThatBecomesWritable) {
  load(kAt, {0x61}, 100);
  map(kPid, kBase, "/lib/two.so", 200);
  map(kPid, kBase, "/lib/one.so", 300);
  protect(kAll, 400);
  finish();
  EXPECT_EQ(got(kAt, 350), certain(0x11));
  EXPECT_EQ(got(kAt, 450), assumed(0x11));
}

// A file that is mapped again has its own code where the other was unloaded, or moved away.
TEST_F(PatchedFile, CodeTakenFromIt) {
  patch(kAt, 0x11, 0x12, 100);
  load(kAt + 1, {0x61}, 100);
  say({.kind = PTD_ANNOUNCE_UNLOAD, .address = kAt, .size = 2}, 200);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kAt + 3, .old_address = kAt + 2, .size = 1, .code = bytes_of({0x33})}, 200);
  map(kPid, kBase, "/lib/one.so", 300);
  finish();
  for (const uint64_t address : {kAt, kAt + 1, kAt + 2}) EXPECT_EQ(got(address, 250).first, Bytes8{}) << address;
  EXPECT_EQ(got(kAt, 350), assumed(0x11));
  EXPECT_EQ(got(kAt + 1, 350), assumed(0x21));
  EXPECT_EQ(got(kAt + 2, 350), assumed(0x31));
  EXPECT_EQ(got(kAt + 3, 250), certain(0x33));
  EXPECT_EQ(got(kAt + 3, 350), assumed(0x33));
  EXPECT_TRUE(data_.timeline.findings().empty());
}

TEST_F(PatchedFile, BytesThatAreNotGiven) {
  patch(kAt + 1, 0x21, 0x22, 100);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kAt, .size = 1}, 200);
  map(kPid, kBase, "/lib/one.so", 300);
  finish();
  EXPECT_EQ(got(kAt, 250).first, Bytes8{});
  EXPECT_EQ(got(kAt, 350), assumed(0x11));
  EXPECT_EQ(got(kAt + 1, 350), assumed(0x22));
}

// What a mapping may have replaced stays assumed where it moves, until a list tells.
TEST_F(PatchedFile, AssumedCodeThatMovesOrIsListed) {
  load(kAt, {0x61, 0xc3}, 100);
  load(kAt + 2, {0x71}, 100);
  feed(perfio::TaskRecord{40, kPid, 40, kPid, 150, false}, 150, kPid);
  map(40, kBase, "/lib/one.so", 200);
  map(kPid, kBase, "/lib/one.so", 200);
  feed(perfio::TaskRecord{50, kPid, 50, kPid, 250, false}, 250, kPid);
  for (const int32_t pid : {40, 50}) say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit, .old_address = kAt, .size = 2}, 300, pid);
  say({.flags = PTD_ANNOUNCE_RELISTED, .address = kAt + 2, .code = bytes_of({0x71})}, 300, 40);
  map(40, kBase, "/lib/one.so", 400);
  finish();
  EXPECT_EQ(got(kAt, 180, kChildSpace), certain(0x61));
  EXPECT_EQ(got(kAt, 250, kChildSpace), assumed(0x61));
  EXPECT_EQ(got(kJit, 350, kChildSpace), assumed(0x61));
  EXPECT_EQ(got(kJit, 350, SpaceId{4}), assumed(0x61));
  EXPECT_EQ(got(kAt + 2, 250, kChildSpace), assumed(0x71));
  EXPECT_EQ(got(kAt + 2, 350, kChildSpace), certain(0x71));
  EXPECT_EQ(got(kAt + 2, 450, kChildSpace), assumed(0x71));
  EXPECT_EQ(got(kAt, 350), assumed(0x61));
  EXPECT_TRUE(data_.timeline.findings().empty());
}

}  // namespace
}  // namespace ptd
