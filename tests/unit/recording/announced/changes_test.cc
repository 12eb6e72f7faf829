// Announced changes whose ranges are not those of one function, and the code that later announcements carry along.
#include "recording/image/announced/live_code.h"
#include "tests/unit/image/source_support.h"
#include "tests/unit/recording/announced/announced_support.h"

namespace ptd {
namespace {

using image_test::bytes_of;

constexpr uint64_t kPlace = 0x10000;

TEST_F(Announced, APatchOfSeveralFunctionsIsMovedWithThem) {
  const auto move = [](uint64_t from) {
    return What{.kind = PTD_ANNOUNCE_MOVE, .address = from + 64, .old_address = from, .size = 2, .name = ""};
  };
  say({.address = kJit + 8, .code = bytes_of({0x11, 0xc3}), .name = "f"}, 100);
  say({.address = kJit + 10, .code = bytes_of({0x21, 0xc3}), .name = "g"}, 100);
  say({.address = kJit + 24, .code = bytes_of({0x31, 0xc3}), .name = "h"}, 100);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kJit + 4, .code = bytes_of({0, 0, 0, 0, 0x12, 0xc3, 0x22, 0xc3, 0, 0})}, 200);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kJit + 25, .code = bytes_of({0x90, 0, 0})}, 200);
  for (const uint64_t from : {kJit + 8, kJit + 10, kJit + 24}) say(move(from), 300);
  finish();
  EXPECT_EQ(at(kJit + 8 + 64, 400).bytes, Bytes8{0x12});
  EXPECT_EQ(at(kJit + 10 + 64, 400).bytes, Bytes8{0x22});
  EXPECT_EQ(at(kJit + 24 + 64, 400).bytes, Bytes8{0x31});
  EXPECT_EQ(at(kJit + 25 + 64, 400).bytes, Bytes8{0x90});
}

TEST_F(Announced, WhatIsLeftOfAFunctionIsPatchedAndMoved) {
  say({.code = bytes_of({0x11, 0x12, 0x13, 0x14, 0x15, 0x16})}, 100);
  say({.kind = PTD_ANNOUNCE_UNLOAD, .address = kJit + 2, .size = 1}, 200);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kJit + 1, .code = bytes_of({0x22, 0x23, 0x24})}, 300);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 64, .old_address = kJit, .size = 2}, 400);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 67, .old_address = kJit + 3, .size = 3}, 400);
  finish();
  const std::vector<int> want{0x11, 0x22, -1, 0x24, 0x15, 0x16};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(at(kJit + 64 + i, 500).bytes, want[i] < 0 ? Bytes8{} : Bytes8{want[i]}) << i;
}

// A compaction slides code over its own old place.
TEST_F(Announced, MovesToAPlaceThatOverlapsTheOldOne) {
  constexpr uint64_t kOther = kJit + 256;
  const std::vector<std::byte> code = bytes_of({0x11, 0x12, 0x13, 0x14});
  const auto move = [&](uint64_t from, uint64_t to, uint64_t time) {
    What what{.kind = PTD_ANNOUNCE_MOVE, .phase = PTD_ANNOUNCE_BEGIN, .address = to, .old_address = from, .size = 4};
    say(what, time);
    what.phase = PTD_ANNOUNCE_END;
    what.code = code;
    say(what, time + 10);
  };
  say({.address = kJit + 2, .code = code}, 100);
  say({.address = kOther, .code = code}, 100);
  move(kJit + 2, kJit, 200);
  move(kOther, kOther + 3, 300);
  finish();
  EXPECT_EQ(at(kJit + 2, 205).bytes, (Bytes8{0x11, 0x13}));
  EXPECT_EQ(at(kOther + 3, 305).bytes, (Bytes8{0x14, 0x11}));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(at(kJit + static_cast<uint64_t>(i), 400).bytes, Bytes8{0x11 + i});
    EXPECT_EQ(at(kOther + 3 + static_cast<uint64_t>(i), 400).bytes, Bytes8{0x11 + i});
  }
  for (const uint64_t old : {kJit + 4, kJit + 5, kOther, kOther + 2}) EXPECT_EQ(at(old, 400).bytes, Bytes8{}) << old;
}

TEST_F(Announced, CodeIsNotMovedFromTheKernel) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 64, .old_address = 0xffffffff81000000, .code = bytes_of({0x21, 0xc3})}, 200);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 64, .old_address = ~uint64_t{0}, .code = bytes_of({0x21, 0xc3})}, 200);
  finish();
  EXPECT_EQ(count(FindingKind::bad_record, "its old range is the kernel's"), 1U);
  EXPECT_EQ(count(FindingKind::bad_record, "its old range is beyond the end of memory"), 1U);
}

// A call may be dated earlier than the announcement of its code.
TEST_F(Announced, NamesInARangeWithoutBytes) {
  say({.size = 64, .name = "heap"}, 100);
  say({.address = kJit + 16, .code = bytes_of({0x11, 0xc3}), .name = "f"}, 200);
  say({.address = kJit + 16, .code = bytes_of({0x21, 0xc3}), .name = "g"}, 300);
  finish();
  EXPECT_EQ(name_at(kJit + 15, 400), "heap");
  EXPECT_EQ(name_at(kJit + 16, 150), "f");
  EXPECT_EQ(name_at(kJit + 16, 250), "f");
  EXPECT_EQ(name_at(kJit + 16, 350), "g");
  EXPECT_EQ(name_at(kJit + 18, 150), "heap");
}

TEST_F(Announced, APatchWithoutBytesLeavesNoneOfItsFunction) {
  constexpr uint64_t kNew = 0x20000;
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say({.address = kNew, .code = bytes_of({0x21, 0xc3})}, 110);
  say({.kind = PTD_ANNOUNCE_PATCH, .size = 1}, 200);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kNew, .size = 1}, 200);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 64, .old_address = kJit, .size = 2}, 300);
  map(kPid, kNew, "//anon", 400);
  finish();
  EXPECT_EQ(at(kJit, 250).bytes, Bytes8{});
  EXPECT_EQ(at(kJit + 64, 350).bytes, Bytes8{});
  EXPECT_EQ(at(kNew, 450).bytes, Bytes8{});
  EXPECT_EQ(name_at(kJit + 64, 350), "f");
}

// What the memory has between functions is of no interest to the run-time until it is loaded again.
TEST_F(Announced, APatchThatCoversAPlaceThatWasLeft) {
  say({.code = bytes_of({0x11, 0xc3}), .name = "f"}, 100);
  say({.address = kJit + 2, .code = bytes_of({0x21, 0xc3}), .name = "g"}, 100);
  say({.address = kJit + 4, .code = bytes_of({0x31, 0xc3}), .name = "h"}, 100);
  say({.kind = PTD_ANNOUNCE_UNLOAD, .address = kJit + 2, .size = 2}, 200);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11, 0xc3, 0xcc, 0xcc, 0x31, 0xc3})}, 300);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12, 0xc3, 0xcc, 0xcc, 0x32, 0xc3})}, 310);
  finish();
  EXPECT_EQ(at(kJit, 400).bytes, Bytes8{0x12});
  EXPECT_EQ(at(kJit + 2, 250).bytes, Bytes8{});
  EXPECT_EQ(at(kJit + 4, 400).bytes, Bytes8{0x32});
  EXPECT_EQ(at(kJit + 4, 400).flags, CodeFlag::none);
  EXPECT_TRUE(data_.timeline.findings().empty());
}

// What began and did not end is in a copy that was made then.
TEST_F(Announced, AMoveOfCodeWhoseChangeDidNotEnd) {
  const What begin{.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11})};
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say(begin, 200);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 64, .old_address = kJit, .size = 2}, 300);
  say({.code = bytes_of({0x11, 0xc3})}, 400);
  say(begin, 500);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12})}, 510);
  finish();
  EXPECT_EQ(at(kJit, 600).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit + 64, 600).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit + 64, 600).flags, CodeFlag::assumed);
}

// Otherwise hostile announcements take the size of the code times their number.
TEST(LiveCode, PatchesAndCutsDoNotCopy) {
  LiveFunctions functions;
  LiveCode live(functions);
  LiveFunction whole;
  whole.size_bytes = 64;
  whole.code = std::make_shared<std::vector<std::byte>>(64);
  const auto* given = whole.code.get();
  live.set(kPlace, std::move(whole));
  live.patch(kPlace, bytes_of({1}));
  const auto* own = live.find(kPlace, 64)->code.get();
  EXPECT_NE(own, given);  // a section has it
  live.patch(kPlace + 1, bytes_of({2}));
  live.cut(kPlace + 30, 1);
  live.patch(kPlace + 29, bytes_of({3, 4, 5}));
  const LiveFunction* left = live.find(kPlace, 30);
  const LiveFunction* right = live.find(kPlace + 31, 33);
  ASSERT_TRUE(left != nullptr && right != nullptr);
  EXPECT_EQ(left->code.get(), own);
  EXPECT_EQ(right->code.get(), own);
  EXPECT_EQ(left->bytes()[1], std::byte{2});
  EXPECT_EQ(left->bytes()[29], std::byte{3});
  EXPECT_EQ(right->bytes()[0], std::byte{5});
}

TEST(LiveCode, ForksShareUntilOneIsPatched) {
  LiveFunctions functions;
  LiveCode parent(functions);
  LiveFunction whole;
  whole.size_bytes = 2;
  whole.code = std::make_shared<std::vector<std::byte>>(2);
  parent.set(kPlace, std::move(whole));
  parent.patch(kPlace, bytes_of({1}));
  LiveCode child = parent.fork();
  EXPECT_EQ(child.find(kPlace, 2), parent.find(kPlace, 2));
  child.patch(kPlace, bytes_of({2}));
  parent.patch(kPlace + 1, bytes_of({3}));
  EXPECT_EQ(std::vector<std::byte>(child.find(kPlace, 2)->bytes().begin(), child.find(kPlace, 2)->bytes().end()), bytes_of({2, 0}));
  EXPECT_EQ(std::vector<std::byte>(parent.find(kPlace, 2)->bytes().begin(), parent.find(kPlace, 2)->bytes().end()), bytes_of({1, 3}));
  const LiveFunction frozen = child.frozen(*child.find(kPlace, 2));
  child.patch(kPlace, bytes_of({4}));
  EXPECT_EQ(frozen.bytes()[0], std::byte{2});
}

}  // namespace
}  // namespace ptd
