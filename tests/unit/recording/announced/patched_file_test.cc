// Announced patches of the code of files, whose mappings are recorded again when their protection changes.
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
  static constexpr uint64_t kBase = 0x20000, kAt = kBase + image_test::SmallElf::kCodeOffset;
  static constexpr SpaceId kChildSpace{3};

  PatchedFile() {
    image_.source.set_saved(std::make_shared<TwoLibraries>());
    map(kPid, kBase, "/lib/one.so", 50);
  }
  void patch(uint64_t address, int before, int after, uint64_t time, int32_t pid = kPid) {
    say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .address = address, .code = bytes_of({before})}, time, pid);
    say({.kind = PTD_ANNOUNCE_PATCH, .address = address, .code = bytes_of({after})}, time + 5, pid);
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

// The file replaces code that was loaded.
TEST_F(PatchedFile, WithLoadedCode) {
  say({.address = kAt, .code = bytes_of({0x61, 0xc3})}, 100);
  patch(kAt, 0x61, 0x62, 200);
  map(kPid, kBase, "/lib/one.so", 300);
  finish();
  EXPECT_EQ(got(kAt, 250), certain(0x62));
  EXPECT_EQ(got(kAt, 350), assumed(0x11));
}

}  // namespace
}  // namespace ptd
