// Announcements of forked children: their code is that of the parent at the fork.
#include <set>

#include "recording/image/announced/open_windows.h"
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
  void fork(int32_t parent, int32_t child, uint64_t time) {
    feed(perfio::TaskRecord{child, parent, child, parent, time, false}, time, parent);
  }
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

/// The parent is forked between the begin and the end of each of its changes.
class ForkedInAChange : public Announced {
 protected:
  static constexpr int32_t kChild = 40, kLater = 50;
  static constexpr SpaceId kChildSpace{3}, kLaterSpace{4};
  static constexpr uint64_t kLoaded = kJit + 64, kFresh = kJit + 128, kMoved = kJit + 192;

  ForkedInAChange() {
    say({.code = bytes_of({0x11, 0xc3}), .name = "f"}, 100);
    say({.address = kLoaded, .code = bytes_of({0x21, 0xc3}), .name = "g"}, 100);
    say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11})}, 200);
    say({.phase = PTD_ANNOUNCE_BEGIN, .address = kLoaded, .size = 2}, 200);
    say({.phase = PTD_ANNOUNCE_BEGIN, .address = kFresh, .size = 2}, 200);
    fork(kChild, 250);
    say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12})}, 300);
    say({.address = kLoaded, .code = bytes_of({0x22, 0xc3})}, 300);
    say({.address = kFresh, .code = bytes_of({0x32, 0xc3})}, 300);
    fork(kLater, 350);
  }
  void fork(int32_t child, uint64_t time, int32_t parent = kPid) {
    feed(perfio::TaskRecord{child, parent, child, parent, time, false}, time, parent);
  }
};

TEST_F(ForkedInAChange, WhatTheChildHasIsNotCertain) {
  finish();
  for (const uint64_t address : {kJit, kLoaded, kFresh}) {
    EXPECT_EQ(at(address, 400, kChildSpace).flags, CodeFlag::assumed) << address;
    EXPECT_EQ(at(address, 400, kLaterSpace).flags, CodeFlag::none) << address;
    EXPECT_EQ(at(address, 400).flags, CodeFlag::none) << address;
  }
  EXPECT_EQ(at(kJit, 400, kLaterSpace).bytes, Bytes8{0x12});
  EXPECT_EQ(at(kJit + 1, 400, kChildSpace).flags, CodeFlag::none);
  EXPECT_TRUE(data_.timeline.findings().empty());
}

// Old bytes prove what was there.
TEST_F(ForkedInAChange, UntilTheChildAnnouncesIt) {
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kMoved, .old_address = kJit, .size = 2}, 400, kChild);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .address = kLoaded, .code = bytes_of({0x21})}, 400, kChild);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kLoaded, .code = bytes_of({0x23})}, 410, kChild);
  say({.flags = PTD_ANNOUNCE_RELISTED, .address = kFresh, .code = bytes_of({0x31, 0xc3})}, 420, kChild);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kMoved, .old_address = kJit, .size = 2}, 400, kLater);
  finish();
  EXPECT_EQ(at(kMoved, 450, kChildSpace).flags, CodeFlag::assumed);
  EXPECT_EQ(at(kMoved, 450, kLaterSpace).bytes, Bytes8{0x12});
  EXPECT_EQ(at(kMoved, 450, kLaterSpace).flags, CodeFlag::none);
  EXPECT_EQ(at(kLoaded, 350, kChildSpace).bytes, Bytes8{0x21});
  EXPECT_EQ(at(kLoaded, 450, kChildSpace).bytes, Bytes8{0x23});
  EXPECT_EQ(at(kLoaded, 450, kChildSpace).flags, CodeFlag::none);
  EXPECT_EQ(at(kFresh, 350, kChildSpace).flags, CodeFlag::assumed);
  EXPECT_EQ(at(kFresh, 450, kChildSpace).bytes, Bytes8{0x31});
  EXPECT_EQ(at(kFresh, 450, kChildSpace).flags, CodeFlag::none);
  EXPECT_TRUE(data_.timeline.findings().empty());
}

TEST_F(ForkedInAChange, AListSettlesWhatTheChildHas) {
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x11, 0xc3}), .name = "f"}, 400, kChild);
  say({.flags = PTD_ANNOUNCE_RELISTED, .address = kLoaded, .code = bytes_of({0x24, 0xc3}), .name = "g"}, 400, kChild);
  finish();
  EXPECT_EQ(at(kJit, 450, kChildSpace).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kLoaded, 450, kChildSpace).bytes, Bytes8{0x24});
  for (const uint64_t address : {kJit, kLoaded}) {
    EXPECT_EQ(at(address, 350, kChildSpace).flags, CodeFlag::assumed);
    EXPECT_EQ(at(address, 450, kChildSpace).flags, CodeFlag::none);
  }
  EXPECT_TRUE(data_.timeline.findings().empty());
}

// What the parent was loading, or moving, may be there as a whole.
TEST_F(ForkedInAChange, AndMovedByTheChild) {
  constexpr uint64_t kOld = kJit + 256, kNew = kJit + 320;
  say({.address = kOld, .code = bytes_of({0x41, 0xc3}), .name = "m"}, 450);
  say({.kind = PTD_ANNOUNCE_MOVE, .phase = PTD_ANNOUNCE_BEGIN, .address = kNew, .old_address = kOld, .size = 2, .name = "m"}, 460);
  fork(60, 470);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kNew, .old_address = kOld, .size = 2, .name = "m"}, 480);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kMoved, .old_address = kFresh, .size = 2}, 500, kChild);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kMoved, .old_address = kNew, .size = 2}, 500, 60);
  finish();
  const auto expect = [this](uint64_t address, uint64_t time, SpaceId space, int byte) {
    EXPECT_EQ(at(address, time, space).bytes, Bytes8{byte}) << address;
    EXPECT_EQ(at(address, time, space).flags, CodeFlag::assumed) << address;
  };
  expect(kFresh, 450, kChildSpace, 0x32);
  expect(kMoved, 550, kChildSpace, 0x32);
  expect(kNew, 490, SpaceId{5}, 0x41);
  expect(kMoved, 550, SpaceId{5}, 0x41);
  EXPECT_EQ(at(kNew, 490).flags, CodeFlag::none);
  EXPECT_TRUE(data_.timeline.findings().empty());
}

// The second fork is within a change to the bytes that the child may have had before.
TEST_F(ForkedInAChange, AndForkedAgainInAChange) {
  constexpr int32_t kGrandchild = 60, kSettled = 70;
  constexpr SpaceId kGrandchildSpace{5}, kSettledSpace{6};
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .size = 1}, 400, kChild);
  say({.phase = PTD_ANNOUNCE_BEGIN, .address = kLoaded, .size = 2}, 400, kChild);
  fork(kGrandchild, 410, kChild);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12})}, 420, kChild);
  say({.address = kLoaded, .code = bytes_of({0x22, 0xc3})}, 420, kChild);
  fork(kSettled, 430, kChild);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kLoaded, .code = bytes_of({0x23})}, 500, kGrandchild);
  finish();
  for (const uint64_t address : {kJit, kLoaded}) {
    EXPECT_EQ(at(address, 450, kGrandchildSpace).flags, CodeFlag::assumed) << address;
    EXPECT_EQ(at(address, 450, kSettledSpace).flags, CodeFlag::none) << address;
  }
  EXPECT_EQ(at(kLoaded, 550, kGrandchildSpace).flags, CodeFlag::none);
}

// The records of a patch are lost after the fork. The next patch shows it, but not that it was later than the fork.
TEST_F(Announced, APatchIsInsertedAroundAFork) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  feed(perfio::TaskRecord{40, kPid, 40, kPid, 150, false}, 150, kPid);
  say({.address = kJit + 64, .code = bytes_of({0x21, 0xc3})}, 200);
  lose(2);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x12})}, 300);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x13})}, 310);
  finish();
  EXPECT_EQ(count(FindingKind::poke_healed), 1U);
  EXPECT_TRUE(any(at(kJit, 400, SpaceId{3}).flags, CodeFlag::assumed));
}

// A recorder could not read what the process announces.
TEST_F(Announced, NobodyListens) {
  say({.kind = PTD_ANNOUNCE_DETACH}, 100);
  say({.code = bytes_of({0x11, 0xc3})}, 100, kOther);
  feed(perfio::TaskRecord{40, kPid, 40, kPid, 150, false}, 150, kPid);
  say({.code = bytes_of({0x12, 0xc3})}, 200, 40);
  finish();
  EXPECT_EQ(
      count(FindingKind::records_lost, "process 10: announcements of its generated code were not read: its code is suspect throughout"),
      1U);
  EXPECT_TRUE(any(at(kJit, 250, SpaceId{3}).flags, CodeFlag::suspect));
  EXPECT_EQ(at(kJit, 250, SpaceId{2}).flags, CodeFlag::none);
}

TEST(OpenWindows, ThoseThatContainAMoment) {
  OpenWindows windows;
  windows.add({TimeNs{10}, TimeNs{20}}, 1);
  windows.add({TimeNs{5}, TimeNs{30}}, 2);
  windows.add({TimeNs{15}, TimeNs{15}}, 3);
  const auto at = [&](uint64_t time) {
    std::multiset<size_t> found;
    EXPECT_TRUE(windows.at(TimeNs{time}, [&](size_t number) { found.insert(number); }));
    return found;
  };
  using Found = std::multiset<size_t>;
  EXPECT_EQ(at(5), Found{2});
  EXPECT_EQ(at(15), (Found{1, 2}));
  EXPECT_EQ(at(20), Found{2});
  EXPECT_EQ(at(30), Found{});
  OpenWindows many;
  for (size_t i = 0; i <= OpenWindows::kMost; ++i) many.add({TimeNs{1}, TimeNs{9}}, i);
  EXPECT_FALSE(many.at(TimeNs{5}, [](size_t) { FAIL(); }));
}

}  // namespace
}  // namespace ptd
