// Announcements of forked children: their code is that of the parent at the fork.
#include "tests/unit/image/source_support.h"
#include "tests/unit/recording/announced/announced_support.h"

namespace ptd {
namespace {

using image_test::bytes_of;

class AnnouncedByChild : public Announced {
 protected:
  static constexpr int32_t kBetween = 30, kChild = 40;  // space 3 announces nothing
  static constexpr SpaceId kChildSpace{4};

  // The parent's code changes after the fork of kBetween, and before that of kChild.
  AnnouncedByChild() {
    say({.code = bytes_of({0x11, 0xc3}), .name = "f"}, 100);
    say({.address = kJit + 64, .code = bytes_of({0x21, 0xc3}), .name = "m"}, 100);
    fork(kPid, kBetween, 200);
    say({.address = kJit + 64, .code = bytes_of({0x31, 0xc3}), .name = "other"}, 250);
    say({.kind = PTD_ANNOUNCE_UNLOAD, .size = 2}, 250);
    fork(kBetween, kChild, 300);
  }
  void fork(int32_t parent, int32_t child, uint64_t time) { feed(perfio::TaskRecord{child, parent, child, parent, time, false}, time, parent); }
  std::string name_in_child(uint64_t address, uint64_t time) {
    const auto symbol = data_.symbolizer->find(kChildSpace, Ip{address}, TimeNs{time});
    return symbol ? std::string(symbol->name) : std::string();
  }
};

TEST_F(AnnouncedByChild, LoadOverInheritedCode) {
  say({.phase = PTD_ANNOUNCE_BEGIN, .size = 2, .name = "g"}, 400, kChild);
  say({.code = bytes_of({0x12, 0xc3}), .name = "g"}, 500, kChild);
  finish();
  EXPECT_EQ(at(kJit, 350, kChildSpace).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 450, kChildSpace).bytes, (Bytes8{0x11, 0x12}));
  EXPECT_EQ(at(kJit, 550, kChildSpace).bytes, Bytes8{0x12});
  EXPECT_TRUE(data_.timeline.findings().empty());
}

TEST_F(AnnouncedByChild, MoveOfInheritedCode) {
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .address = kJit + 64, .code = bytes_of({0x21})}, 400, kChild);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kJit + 64, .code = bytes_of({0x22})}, 410, kChild);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 128, .old_address = kJit + 64, .size = 2, .name = ""}, 500, kChild);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 128, .old_address = kJit + 64, .size = 2, .name = ""}, 600);
  finish();
  EXPECT_EQ(at(kJit + 64, 450, kChildSpace).bytes, Bytes8{0x22});
  EXPECT_EQ(at(kJit + 128, 550, kChildSpace).bytes, Bytes8{0x22});
  EXPECT_EQ(at(kJit + 64, 550, kChildSpace).bytes, Bytes8{});
  EXPECT_EQ(name_in_child(kJit + 128, 550), "m");
  EXPECT_EQ(at(kJit + 128, 650).bytes, Bytes8{0x31});  // the child's patch is not the parent's
  EXPECT_EQ(name_at(kJit + 128, 650), "other");
  EXPECT_TRUE(data_.timeline.findings().empty());
}

TEST_F(AnnouncedByChild, MemoryThatBecomesExecutableInTheChild) {
  constexpr uint64_t kNew = 0x20000;
  say({.address = kNew, .code = bytes_of({0x41, 0xc3})}, 310);
  fork(kPid, 50, 320);
  map(50, kNew, "//anon", 400);
  say({.address = kNew + 64, .code = bytes_of({0x42, 0xc3})}, 410, 50);
  map(kPid, kNew, "//anon", 900);
  finish();
  EXPECT_EQ(at(kNew, 450, SpaceId{5}).bytes, Bytes8{0x41});
}

TEST_F(AnnouncedByChild, AListOfInheritedCodeChangesNothing) {
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x11, 0xc3}), .name = "f"}, 400, kChild);
  finish();
  EXPECT_EQ(at(kJit, 350, kChildSpace).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 350, kChildSpace).flags, CodeFlag::none);
  EXPECT_TRUE(data_.timeline.findings().empty());
}

TEST_F(AnnouncedByChild, AListContradictsInheritedCode) {
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x12, 0xc3}), .name = "f"}, 400, kChild);
  finish();
  EXPECT_EQ(count(FindingKind::poke_old_bytes_mismatch, "a change was not announced"), 1U);
  EXPECT_TRUE(any(at(kJit, 350, kChildSpace).flags, CodeFlag::suspect));
  EXPECT_EQ(at(kJit, 450, kChildSpace).bytes, Bytes8{0x12});
}

// The reader came after announcements of the child, which may have changed what it inherited.
TEST_F(AnnouncedByChild, AListAfterUnreadAnnouncements) {
  say({.kind = PTD_ANNOUNCE_ATTACH, .size = 7}, 400, kChild);
  next_[kChild] = 7;
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x12, 0xc3}), .name = "f"}, 410, kChild);
  finish();
  EXPECT_TRUE(data_.timeline.findings().empty());
  EXPECT_EQ(at(kJit, 350, kChildSpace).flags, CodeFlag::assumed);
  EXPECT_EQ(at(kJit, 450, kChildSpace).bytes, Bytes8{0x12});
  EXPECT_EQ(at(kJit, 450, kChildSpace).flags, CodeFlag::none);
}

}  // namespace
}  // namespace ptd
