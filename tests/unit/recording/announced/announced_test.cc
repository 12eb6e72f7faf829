// Announcements of generated code -> sections, edits, names, suspect windows and findings.
#include "tests/unit/recording/announced/announced_support.h"

namespace ptd {
namespace {

using image_test::bytes_of;

// Memory becomes executable after its code was announced, or between the begin and the end of that, and changes its protection again.
TEST_F(Announced, FreshMemoryShowsWhatWasAnnounced) {
  constexpr uint64_t kNew = 0x20000;
  say({.phase = PTD_ANNOUNCE_BEGIN, .address = kNew, .size = 2}, 100);
  say({.address = kNew, .code = bytes_of({0x11, 0xc3})}, 110);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .address = kNew, .code = bytes_of({0x11})}, 120);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kNew, .code = bytes_of({0x12})}, 130);
  say({.phase = PTD_ANNOUNCE_BEGIN, .address = kNew + 0x100, .size = 2}, 140);
  map(kPid, kNew, "//anon", 150);
  say({.address = kNew + 0x100, .code = bytes_of({0x21, 0xc3})}, 160);
  say({.address = kNew + 0x200, .code = bytes_of({0x31, 0xc3})}, 170);
  map(kPid, kNew, "//anon", 180);
  finish();
  EXPECT_EQ(at(kNew, 155).bytes, Bytes8{0x12});
  EXPECT_EQ(at(kNew + 0x100, 165).bytes, Bytes8{0x21});
  EXPECT_EQ(at(kNew + 0x200, 190).bytes, Bytes8{0x31});
  EXPECT_EQ(at(kNew + 0x300, 190).bytes, Bytes8{});
}

// A library is unmapped, of which no record tells, and announced code comes to its place.
TEST_F(Announced, MemoryInPlaceOfAFileShowsWhatWasAnnouncedSince) {
  constexpr uint64_t kPlace = 0x20000;
  map(kPid, kPlace, "/some/file", 50);
  say({.address = kPlace, .code = bytes_of({0x11, 0xc3})}, 110);
  map(kPid, kPlace, "//anon", 150);
  map(kPid, kPlace, "/some/file", 250);
  map(kPid, kPlace, "//anon", 300);
  finish();
  EXPECT_EQ(at(kPlace, 200).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kPlace, 350).bytes, Bytes8{});
}

/// Copies of memory: each begins with the time of its mapping.
class CopiesByTime : public SavedInFolder {
 public:
  OfMapping of_mapping(const MappedPath& wanted) override {
    if (wanted.path != "//anon") return {};
    const auto file =
        MappedFile::open(dir_.write("copy-" + std::to_string(wanted.time_ns), std::vector<std::byte>(4096, std::byte(wanted.time_ns))));
    return {file.ok() ? *file : nullptr, true};
  }
};

// A change of protection is reported as a mapping. What a process announces is more exact than a copy of its memory, and says nothing of
// other processes.
TEST_F(Announced, CopiesOfOtherProcessesCount) {
  image_.source.set_saved(std::make_shared<CopiesByTime>());
  say({.code = bytes_of({0x11, 0xc3})}, 10);
  map(kPid, kJit, "//anon", 100);
  map(kOther, kJit, "//anon", 100);
  finish();
  EXPECT_EQ(at(kJit, 150).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 50, space_of(kOther)).bytes, Bytes8{1});
  EXPECT_EQ(at(kJit, 150, space_of(kOther)).bytes, Bytes8{100});
}

TEST_F(Announced, LoadUnloadReuse) {
  say({.code = bytes_of({0x11, 0xc3}), .name = "first"}, 100);
  say({.kind = PTD_ANNOUNCE_UNLOAD, .size = 2}, 200);
  say({.code = bytes_of({0x22, 0xc3}), .name = "second"}, 300);
  finish();
  EXPECT_EQ(at(kJit, 50).bytes, Bytes8{});
  EXPECT_EQ(at(kJit, 150).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 250).bytes, Bytes8{});
  EXPECT_EQ(at(kJit, 350).bytes, Bytes8{0x22});
  EXPECT_EQ(name_at(kJit, 150), "first");
  EXPECT_EQ(name_at(kJit, 250), "second");  // a call of it may be dated earlier than its announcement, and nothing else was there
  EXPECT_EQ(name_at(kJit, 350), "second");
  EXPECT_EQ(at(kJit, 350, space_of(kOther)).bytes, Bytes8{});
  EXPECT_TRUE(data_.timeline.findings().empty());
}

TEST_F(Announced, BracketsAreIntervals) {
  say({.code = bytes_of({0x11, 0x90, 0xc3})}, 100);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11})}, 200);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12})}, 300);
  say({.phase = PTD_ANNOUNCE_BEGIN, .size = 3}, 400);  // over live code
  say({.code = bytes_of({0x13, 0x90, 0xc3})}, 500);
  finish();
  EXPECT_EQ(at(kJit, 199).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 250).bytes, (Bytes8{0x11, 0x12}));
  EXPECT_EQ(at(kJit, 350).bytes, Bytes8{0x12});
  EXPECT_EQ(at(kJit, 450).bytes, (Bytes8{0x12, 0x13}));
  EXPECT_EQ(at(kJit, 550).bytes, Bytes8{0x13});
  EXPECT_TRUE(data_.timeline.findings().empty());
}

TEST_F(Announced, OldBytesAreChecked) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x77})}, 200);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12})}, 210);
  finish();
  EXPECT_EQ(count(FindingKind::poke_old_bytes_mismatch), 1U);
  EXPECT_EQ(at(kJit, 300).bytes, Bytes8{0x12});
}

TEST_F(Announced, Move) {
  say({.code = bytes_of({0x11, 0xc3}), .name = "f"}, 100);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 64, .old_address = kJit, .size = 2, .name = ""}, 200);
  finish();
  EXPECT_EQ(at(kJit, 150).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 250).bytes, Bytes8{});
  EXPECT_EQ(at(kJit + 64, 250).bytes, Bytes8{0x11});
  EXPECT_EQ(name_at(kJit + 64, 250), "f");
}

TEST_F(Announced, AFileThatIsMappedOverCodeEndsItsName) {
  say({.code = bytes_of({0x11, 0xc3}), .name = "f"}, 100);
  say({.address = kJit + 8, .code = bytes_of({0x11, 0xc3}), .name = "g"}, 100);
  map(kPid, kJit, "/absent.so", 200);
  say({.address = kJit + 8, .code = bytes_of({0x22, 0xc3}), .name = "h"}, 300);
  finish();
  EXPECT_EQ(name_at(kJit, 199), "f");
  EXPECT_EQ(name_at(kJit, 200), "");
  EXPECT_EQ(name_at(kJit + 8, 199), "g");
  EXPECT_EQ(name_at(kJit + 8, 200), "");
  EXPECT_EQ(name_at(kJit + 8, 300), "h");
}

TEST_F(Announced, OutsideOfExecutableMappings) {
  say({.address = kJit - 1, .code = bytes_of({0x11, 0xc3})}, 100);
  say({.address = kJit + 4095, .code = bytes_of({0x11, 0xc3})}, 110);
  say({.address = 0x7000000, .code = bytes_of({0x11, 0xc3})}, 120);
  say({.kind = PTD_ANNOUNCE_UNLOAD, .address = 0x7000000, .size = 1ULL << 40}, 130);
  finish();
  EXPECT_EQ(count(FindingKind::bad_record, "outside of the executable mappings"), 4U);
  EXPECT_EQ(at(kJit + 4095, 200).bytes, Bytes8{});
  EXPECT_EQ(at(0x7000000, 200).bytes, Bytes8{});
}

TEST_F(Announced, LostNumbersMakeOneProcessSuspectUntilTheRelist) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say({.code = bytes_of({0x33, 0xc3})}, 100, kOther);
  lose(3);
  relist(PTD_ANNOUNCE_BEGIN, 300);
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x22, 0xc3})}, 310);
  relist(PTD_ANNOUNCE_END, 320);
  finish();
  EXPECT_EQ(at(kJit, 50).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 200).flags, CodeFlag::suspect);
  EXPECT_EQ(at(kJit, 400).bytes, Bytes8{0x22});
  EXPECT_EQ(at(kJit, 400).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 200, space_of(kOther)).bytes, Bytes8{0x33});
  EXPECT_EQ(at(kJit, 200, space_of(kOther)).flags, CodeFlag::none);
  EXPECT_EQ(count(FindingKind::records_lost, "3 announcements of its generated code are lost (numbers 1 to 3)"), 1U);
}

// It says that the code is still there, and not what it is.
TEST_F(Announced, AListWithoutBytesAfterALoss) {
  const auto list = [&](std::vector<std::byte> code, uint64_t time) {
    relist(PTD_ANNOUNCE_BEGIN, time);
    say({.flags = PTD_ANNOUNCE_RELISTED, .size = 2, .code = std::move(code)}, time);
    relist(PTD_ANNOUNCE_END, time);
  };
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  list({}, 150);
  lose(2);
  list({}, 300);
  list(bytes_of({0x11, 0xc3}), 400);
  list({}, 500);
  finish();
  EXPECT_EQ(at(kJit, 160).flags, CodeFlag::suspect);
  EXPECT_EQ(at(kJit, 350).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 350).flags, CodeFlag::assumed);
  EXPECT_EQ(at(kJit, 450).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 550).flags, CodeFlag::none);
}

// A reader comes after them, and could have read them.
TEST_F(Announced, NumbersLostBeforeTheReaderCame) {
  say({.kind = PTD_ANNOUNCE_ATTACH}, 500);
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  lose(2);
  say({.code = bytes_of({0x33, 0xc3})}, 600);
  say({.kind = PTD_ANNOUNCE_ATTACH}, 500, kOther);
  next_[kOther] = 2;
  say({.code = bytes_of({0x33, 0xc3})}, 400, kOther);
  finish();
  EXPECT_EQ(at(kJit, 99).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 150).flags, CodeFlag::suspect);
  EXPECT_EQ(at(kJit, 450, space_of(kOther)).flags, CodeFlag::suspect);
  EXPECT_EQ(count(FindingKind::records_lost, "its code is suspect throughout"), 1U);
}

// What was lost first may be older than the reader, and what is listed then is not older than its memory.
TEST_F(Announced, AListAfterTheFirstNumbersAreLost) {
  say({.kind = PTD_ANNOUNCE_ATTACH}, 100);
  lose(1);
  relist(PTD_ANNOUNCE_BEGIN, 300);
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x22, 0xc3})}, 310);
  relist(PTD_ANNOUNCE_END, 320);
  finish();
  EXPECT_EQ(at(kJit, 200).bytes, Bytes8{0x22});
  EXPECT_EQ(at(kJit, 200).flags, CodeFlag::suspect);
  EXPECT_EQ(at(kJit, 400).flags, CodeFlag::none);
}

TEST_F(Announced, WithoutARelistItStaysSuspect) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  lose(1);
  say({.address = kJit + 64, .code = bytes_of({0x22, 0xc3})}, 200);
  finish();
  EXPECT_EQ(at(kJit, 900).flags, CodeFlag::suspect);
  EXPECT_EQ(count(FindingKind::records_lost, "since then"), 1U);
}

// An end after a gap is not that of a begin before it.
TEST_F(Announced, BracketsDoNotSpanGaps) {
  const What begin{.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11})};
  const What end{.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12})};
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say(begin, 200);
  lose(1);
  relist(PTD_ANNOUNCE_BEGIN, 300);
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x11, 0xc3})}, 310);
  relist(PTD_ANNOUNCE_END, 320);
  say(begin, 400);
  say(end, 410);
  finish();
  EXPECT_EQ(at(kJit, 350).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 350).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 200).flags, CodeFlag::suspect);
  EXPECT_EQ(at(kJit, 500).bytes, Bytes8{0x12});
  EXPECT_EQ(count(FindingKind::poke_healed), 0U);
}

TEST_F(Announced, ABeginWithoutAnEnd) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11})}, 200);
  finish();
  EXPECT_EQ(at(kJit, 150).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 250).flags, CodeFlag::suspect);
}

// The later change applies: its begin and end belong together. What the first one may have written is suspect until then.
TEST_F(Announced, ABeginWithoutAnEndBeforeTheSameChange) {
  const What begin{.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11})};
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say(begin, 200);
  say({.code = bytes_of({0x11, 0xc3})}, 250);
  say(begin, 300);
  say(begin, 400);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12})}, 410);
  finish();
  EXPECT_EQ(at(kJit, 199).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 201).flags, CodeFlag::suspect);
  EXPECT_EQ(at(kJit, 350).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 350).flags, CodeFlag::suspect);
  EXPECT_EQ(at(kJit, 405).bytes, (Bytes8{0x11, 0x12}));
  EXPECT_EQ(at(kJit, 500).bytes, Bytes8{0x12});
  EXPECT_EQ(at(kJit, 500).flags, CodeFlag::none);
  EXPECT_EQ(count(FindingKind::records_lost, "at [0x10000, 0x10001) was announced to begin and not to end"), 2U);
  EXPECT_EQ(data_.timeline.findings().size(), 2U);
}

// Nothing ran where code was to be loaded, and what was loaded there later is known.
TEST_F(Announced, ALoadThatIsTriedAgain) {
  say({.phase = PTD_ANNOUNCE_BEGIN, .size = 2}, 100);
  say({.phase = PTD_ANNOUNCE_BEGIN, .size = 2}, 200);
  say({.code = bytes_of({0x11, 0xc3})}, 300);
  finish();
  EXPECT_EQ(at(kJit, 150).bytes, Bytes8{});
  EXPECT_EQ(at(kJit, 400).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 400).flags, CodeFlag::none);
  EXPECT_TRUE(data_.timeline.findings().empty());
}

// The first load ended, but its record says that it began.
TEST_F(Announced, ABeginAndTheEndOfAnotherLoad) {
  say({.code = bytes_of({0x11, 0xc3}), .name = "a"}, 100);
  say({.phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x22, 0xc3}), .name = "b"}, 200);
  say({.code = bytes_of({0x33, 0xc3}), .name = "c"}, 300);
  say({.phase = PTD_ANNOUNCE_BEGIN, .address = kJit + 64, .code = bytes_of({0x44, 0xc3}), .name = "d"}, 400);
  say({.address = kJit + 64, .code = bytes_of({0x55, 0xc3}), .name = "e"}, 500);
  finish();
  EXPECT_EQ(at(kJit, 150).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 250).flags, CodeFlag::suspect);
  EXPECT_EQ(at(kJit, 350).bytes, Bytes8{0x33});
  EXPECT_EQ(at(kJit, 350).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit + 64, 450).bytes, Bytes8{});
  EXPECT_EQ(at(kJit + 64, 550).bytes, Bytes8{0x55});
  EXPECT_EQ(count(FindingKind::records_lost,
                  "was announced to begin and not to end: its code is suspect until a change of another name ended there"),
            2U);
}

// Without names, or with one name, the bytes that a load replaces tell.
TEST_F(Announced, ABeginWithOtherBytesThanTheLiveOnes) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say({.phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11, 0xc3})}, 200);
  say({.code = bytes_of({0x22, 0xc3})}, 300);
  say({.phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x33, 0xc3})}, 400);
  say({.code = bytes_of({0x44, 0xc3})}, 500);
  finish();
  EXPECT_EQ(count(FindingKind::poke_old_bytes_mismatch, ""), 1U);
  EXPECT_EQ(at(kJit, 550).bytes, Bytes8{0x44});
}

TEST_F(Announced, BeginAndEndThatDoNotMatch) {
  say({.code = bytes_of({0x11, 0xc3})}, 50);
  say({.address = kJit + 64, .code = bytes_of({0x21, 0xc3})}, 100);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11})}, 200);
  say({.kind = PTD_ANNOUNCE_PATCH, .address = kJit + 64, .code = bytes_of({0x22})}, 300);
  finish();
  EXPECT_EQ(at(kJit, 60).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit + 64, 150).flags, CodeFlag::suspect);  // the patch may have begun here
  EXPECT_EQ(at(kJit + 64, 350).bytes, Bytes8{0x22});
  EXPECT_EQ(at(kJit, 350).flags, CodeFlag::suspect);
  EXPECT_EQ(count(FindingKind::records_lost, "at [0x10000, 0x10001) was announced to begin and not to end"), 1U);
  EXPECT_EQ(count(FindingKind::records_lost, "a patch of [0x10040, 0x10041) was announced to end and not to begin"), 1U);
}

// Some run-times notice only afterwards that code changed, and announce no begin at all.
TEST_F(Announced, PatchesThatNeverBegin) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12})}, 200);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x13})}, 300);
  finish();
  EXPECT_EQ(at(kJit, 250).bytes, Bytes8{0x12});
  EXPECT_EQ(at(kJit, 350).bytes, Bytes8{0x13});
  EXPECT_TRUE(data_.timeline.findings().empty());
}

TEST_F(Announced, LateAttach) {
  say({.kind = PTD_ANNOUNCE_ATTACH, .size = 7}, 500);
  next_[kPid] = 7;
  relist(PTD_ANNOUNCE_BEGIN, 600);
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x11, 0xc3})}, 610);
  relist(PTD_ANNOUNCE_END, 620);
  say({.kind = PTD_ANNOUNCE_DETACH, .size = 11}, 900);
  finish();
  EXPECT_EQ(at(kJit, 550).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 550).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 400).flags, CodeFlag::assumed);
  EXPECT_EQ(count(FindingKind::records_lost, "1 announcement of its generated code is lost (number 10)"), 1U);  // at the end
}

// A reader came while code was patched. What is listed is the new code, and until the patch ended, the old one may have run.
TEST_F(Announced, AttachDuringAPatch) {
  say({.kind = PTD_ANNOUNCE_ATTACH}, 500);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x22})}, 610);
  relist(PTD_ANNOUNCE_BEGIN, 611);
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x22, 0xc3})}, 612);
  relist(PTD_ANNOUNCE_END, 613);
  finish();
  EXPECT_TRUE(any(at(kJit, 550).flags, CodeFlag::suspect));
  EXPECT_EQ(at(kJit, 650).bytes, Bytes8{0x22});
  EXPECT_FALSE(any(at(kJit, 650).flags, CodeFlag::suspect));
  EXPECT_TRUE(data_.timeline.findings().empty());
}

// A run-time that began to announce only after the reader came: its code is certain from then on.
TEST_F(Announced, UnwatchedCode) {
  say({.kind = PTD_ANNOUNCE_ATTACH}, 500);
  say({.flags = PTD_ANNOUNCE_RELISTED | PTD_ANNOUNCE_UNWATCHED, .code = bytes_of({0x11, 0xc3})}, 610);
  say({.flags = PTD_ANNOUNCE_RELISTED, .address = kJit + 64, .code = bytes_of({0x22, 0xc3})}, 610);
  finish();
  EXPECT_EQ(at(kJit, 650).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 650).flags, CodeFlag::none);
  EXPECT_EQ(at(kJit, 550).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 550).flags, CodeFlag::assumed);
  EXPECT_EQ(at(kJit + 64, 550).flags, CodeFlag::none);
}

TEST_F(Announced, OtherVersionsAreRefusedByName) {
  say({.code = bytes_of({0x11, 0xc3}), .version = 9}, 100);
  say({.address = kJit + 64, .code = bytes_of({0x22, 0xc3}), .version = 9}, 110);
  finish();
  EXPECT_EQ(count(FindingKind::bad_record, "process 10: 2 records are not used: announcements in version 9 of the format"), 1U);
  EXPECT_EQ(at(kJit, 200).bytes, Bytes8{});
}

// mprotect reports the memory again; another file there is something else.
TEST_F(Announced, MemoryThatIsReportedAgain) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  map(kPid, kJit, "//anon", 200);
  map(kPid, kJit, "/some/file", 300);
  finish();
  EXPECT_EQ(at(kJit, 250).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 350).bytes, Bytes8{});
}

TEST_F(Announced, ForkedChildHasItsParentsCode) {
  say({.code = bytes_of({0x11, 0xc3})}, 100);
  feed(perfio::TaskRecord{30, kPid, 30, kPid, 200, false}, 200, kPid);
  say({.kind = PTD_ANNOUNCE_UNLOAD, .size = 2}, 300);
  say({.kind = PTD_ANNOUNCE_PATCH, .phase = PTD_ANNOUNCE_BEGIN, .code = bytes_of({0x11})}, 400, 30);
  say({.kind = PTD_ANNOUNCE_PATCH, .code = bytes_of({0x12})}, 410, 30);
  finish();
  const SpaceId child{3};
  EXPECT_EQ(at(kJit, 350).bytes, Bytes8{});
  EXPECT_EQ(at(kJit, 350, child).bytes, Bytes8{0x11});
  EXPECT_EQ(at(kJit, 450, child).bytes, Bytes8{0x12});
}

TEST_F(Announced, LinesAreThoseOfTheCodeAtThatTime) {
  say({.code = bytes_of({0x11, 0x22, 0x33, 0xc3}), .file = "a.js", .lines = {{2, 8}, {1, 7}}}, 100);
  say({.kind = PTD_ANNOUNCE_MOVE, .address = kJit + 16, .old_address = kJit, .size = 4}, 200);
  say({.code = bytes_of({0x44, 0xc3}), .name = "g", .file = "b.js", .lines = {{0, 50}}}, 300);
  say({.code = bytes_of({0x55, 0xc3}), .name = "h"}, 400);
  finish();
  const auto line = [&](uint64_t address, uint64_t time) {
    const SourcePlace place = data_.symbolizer->source_at(SpaceId{1}, Ip{address}, TimeNs{time});
    EXPECT_TRUE(place.valid.contains(TimeNs{time}));
    std::string text;
    for (const SourceFrame& frame : place.frames)
      text += std::string(frame.function) + " " + std::string(frame.file) + ":" + std::to_string(frame.line);
    return text;
  };
  EXPECT_EQ(line(kJit, 150), "");  // before the first line's offset
  EXPECT_EQ(line(kJit + 1, 150), "f a.js:7");
  EXPECT_EQ(line(kJit + 3, 150), "f a.js:8");
  EXPECT_EQ(line(kJit + 1, 250), "g b.js:50");  // nothing else was there
  EXPECT_EQ(line(kJit + 17, 250), "f a.js:7");
  EXPECT_EQ(line(kJit + 1, 350), "g b.js:50");
  EXPECT_EQ(line(kJit + 1, 450), "");
}

// Nobody listened for a while, and no number shows what changed then.
TEST_F(Announced, NoReaderInBetween) {
  say({.kind = PTD_ANNOUNCE_ATTACH}, 5);
  say({.code = bytes_of({0x11, 0x12})}, 10);
  say({.kind = PTD_ANNOUNCE_DETACH, .size = 1}, 20);
  say({.kind = PTD_ANNOUNCE_ATTACH, .size = 1}, 30);
  relist(PTD_ANNOUNCE_BEGIN, 40);
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x21, 0x22})}, 41);
  relist(PTD_ANNOUNCE_END, 42);
  say({.address = kJit + 0x100, .code = bytes_of({0x31})}, 50);
  finish();
  EXPECT_EQ(at(kJit, 15).bytes, Bytes8{0x11});
  EXPECT_FALSE(any(at(kJit, 15).flags, CodeFlag::suspect));
  EXPECT_TRUE(any(at(kJit, 25).flags, CodeFlag::suspect));
  EXPECT_TRUE(any(at(kJit, 35).flags, CodeFlag::suspect));
  EXPECT_EQ(at(kJit, 45).bytes, Bytes8{0x21});
  EXPECT_FALSE(any(at(kJit, 45).flags, CodeFlag::suspect));
  EXPECT_EQ(count(FindingKind::records_lost,
                  "announcements of its generated code were not read for a while: its code is suspect until it announced all of it again"),
            1U);
}

// The second reader found the ring whole, and says that it begins at 0: what was announced before the gap stays known.
TEST_F(Announced, NoReaderInBetweenAWholeRing) {
  say({.kind = PTD_ANNOUNCE_ATTACH}, 5);
  relist(PTD_ANNOUNCE_BEGIN, 6);
  say({.flags = PTD_ANNOUNCE_RELISTED, .code = bytes_of({0x11, 0x12})}, 7);
  relist(PTD_ANNOUNCE_END, 8);
  say({.kind = PTD_ANNOUNCE_DETACH, .size = 3}, 20);
  say({.kind = PTD_ANNOUNCE_ATTACH}, 30);
  say({.address = kJit + 0x100, .code = bytes_of({0x31})}, 50);
  finish();
  EXPECT_EQ(at(kJit, 15).bytes, Bytes8{0x11});
  EXPECT_FALSE(any(at(kJit, 15).flags, CodeFlag::suspect));
  EXPECT_TRUE(any(at(kJit, 25).flags, CodeFlag::suspect));
  EXPECT_TRUE(any(at(kJit, 60).flags, CodeFlag::suspect));  // nothing was listed again
}

TEST(AnnounceJoiner, ChunksThatDoNotBelongTogether) {
  AnnounceRecord record;
  record.code_bytes = 2 * PTD_ANNOUNCE_CHUNK_BYTES;
  record.size_bytes = record.code_bytes;
  record.chunks = 2;
  const std::vector<std::byte> data(PTD_ANNOUNCE_CHUNK_BYTES);
  record.data = data;
  const auto history_of = [&](std::vector<std::pair<uint64_t, uint32_t>> pieces, uint64_t other_address = 0) {
    AnnounceJoiner joiner;
    for (const auto& [seq, chunk] : pieces) {
      record.seq = seq;
      record.chunk = chunk;
      record.address = chunk == 1 ? other_address : 0;
      joiner.add(record, TimeNs{seq * 10});
    }
    return joiner.finish();
  };
  EXPECT_EQ(history_of({{5, 0}, {6, 1}}).announcements.size(), 1U);
  EXPECT_EQ(history_of({{6, 1}, {5, 0}, {5, 0}}).announcements.size(), 1U);
  EXPECT_TRUE(history_of({{5, 0}, {6, 1}}).gaps.empty());
  EXPECT_EQ(history_of({{5, 0}, {7, 1}}).announcements.size(), 0U);
  EXPECT_EQ(history_of({{5, 0}, {7, 0}, {8, 1}}).announcements.size(), 1U);
  EXPECT_EQ(history_of({{5, 0}, {7, 0}, {8, 1}}).gaps.size(), 1U);
  EXPECT_EQ(history_of({{5, 0}, {6, 1}}, 64).announcements.size(), 0U);
}

}  // namespace
}  // namespace ptd
