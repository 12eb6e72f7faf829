// The stash as a library: contents, entries, gc, verify; damage, strangers and a full disk.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "image/source/elf_file.h"
#include "image/stash/parsed_symbols.h"
#include "recording/image/stashed_code.h"
#include "tests/stash/scratch.h"

namespace ptd::stash {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// FIPS 180-4, examples of SHA-256: "abc", the empty message, and two blocks.
TEST(Hash, IsSha256) {
  EXPECT_EQ(hash_of(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_FALSE(is_hash("BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
  EXPECT_FALSE(is_hash("../../../../../../../../../../../../../../../../../../etc/passwd"));
}

Entries some_entries() {
  const std::string hash = hash_of(bytes_of("x"));
  Entries entries{"/home/a b/perf.data\n%", "host", 1700000000, {}};
  entries.entries.push_back({12, 0, 5, 0x400000, 0x1000, 0, EntryKind::file, hash, "abcdef01", "/bin/with blank"});
  entries.entries.push_back({12, 1, ~uint64_t{0}, 0x7fff00000000, 0x2000, 0x3000, EntryKind::memory, hash, "", "/memfd:\x01\t (deleted)"});
  entries.entries.push_back({7, 0, 0, 0, 0, 0, EntryKind::vdso, hash, "", ""});
  return entries;
}

TEST(EntriesText, ComesBackAsItWas) {
  const Entries wrote = some_entries();
  const auto read = parse_entries(to_text(wrote));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->recording, wrote.recording);
  EXPECT_EQ(read->made_s, wrote.made_s);
  ASSERT_THAT(read->entries, SizeIs(3));
  const Entry &vdso = read->entries[0], &memory = read->entries[2];  // by process
  EXPECT_EQ(vdso.pid, 7);
  EXPECT_EQ(vdso.path, "");
  EXPECT_EQ(memory.path, wrote.entries[1].path);
  EXPECT_EQ(memory.time_ns, ~uint64_t{0});
  EXPECT_EQ(memory.kind, EntryKind::memory);
  EXPECT_EQ(memory.generation, 1U);
}

TEST(EntriesText, NoByteOfItCanBeAnotherUnseen) {
  const std::string text = to_text(some_entries());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(parse_entries(damaged).ok()) << i;
    EXPECT_FALSE(parse_entries(text.substr(0, i)).ok()) << i;
  }
  EXPECT_EQ(parse_entries("ptdecode-stash-entries 2\nanything").error().kind(), ErrorKind::unsupported);
}

TEST(EntriesText, GenerationsGoOnWhereOlderOnesEnded) {
  Entries older = some_entries(), newer = some_entries();
  newer.entries[0].time_ns = 6;  // another mapping at the same address
  number_generations(newer);
  merge(older, newer);
  ASSERT_THAT(newer.entries, SizeIs(4));  // equal ones are stored once
  std::set<std::pair<int32_t, uint64_t>> names;
  for (const Entry& entry : newer.entries) EXPECT_TRUE(names.emplace(entry.pid, entry.generation).second);
  EXPECT_TRUE(names.contains({12, 2}));
}

TEST_F(Scratch, AContentIsThereOnceAndLinkedFromEachRecording) {
  const auto stash = open();
  keep(*stash, 1, {"one", "two"});
  keep(*stash, 2, {"one"});
  struct stat one {
  }, two{};
  ASSERT_EQ(::stat(object("one").c_str(), &one), 0);
  ASSERT_EQ(::stat(object("two").c_str(), &two), 0);
  EXPECT_EQ(one.st_nlink, 3U);
  EXPECT_EQ(two.st_nlink, 2U);
  EXPECT_EQ(one.st_mode & 0777, 0400U);
  const Listing listing = list(*stash);
  EXPECT_EQ(listing.total_bytes, 6U);
  EXPECT_THAT(listing.contents, SizeIs(2));
  EXPECT_THAT(listing.recordings, SizeIs(2));
  EXPECT_EQ(listing.in_the_making, 0U);
  EXPECT_THAT(verify(*stash, false).problems, IsEmpty());
  const auto read = stash->read(hash_of(bytes_of("one")));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>((*read)->bytes().data()), (*read)->bytes().size()), "one");
}

TEST_F(Scratch, ARecordingThatIsKeptTwiceBecomesOne) {
  const auto stash = open();
  keep(*stash, 1, {"one"});
  keep(*stash, 1, {"one", "two"});
  const auto entries = stash->entries_of(identity(1));
  ASSERT_TRUE(entries.ok());
  ASSERT_THAT(entries->entries, SizeIs(2));
  EXPECT_EQ(entries->entries[1].generation, 1U);
  EXPECT_EQ(list(*stash).in_the_making, 0U);
  EXPECT_THAT(verify(*stash, false).problems, IsEmpty());
  GcOptions nothing;
  EXPECT_EQ(gc(*stash, nothing)->contents, 0U);
}

TEST_F(Scratch, DamageIsNamedAndNeverGiven) {
  keep(*open(), 1, {"one", "two"});
  overwrite(object("one"), "onf");
  const auto stash = open();
  const auto read = stash->read(hash_of(bytes_of("one")));
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr(object("one") + " is damaged"));
  VerifyReport report = verify(*stash, false);
  ASSERT_THAT(report.problems, SizeIs(2));  // the content, and the recording that refers to it
  EXPECT_EQ(report.problems[0].path, object("one"));
  EXPECT_THAT(report.problems[1].what, HasSubstr("/bin/x"));
  EXPECT_TRUE(verify(*stash, true).problems[0].removed);
  keep(*stash, 2, {"one"});  // stores it again
  EXPECT_TRUE(stash->read(hash_of(bytes_of("one"))).ok());
}

TEST_F(Scratch, ADamagedContentOfAnotherSizeGivesWayAtOnce) {
  keep(*open(), 1, {"one"});
  overwrite(object("one"), "");
  const auto stash = open();
  keep(*stash, 2, {"one"});
  EXPECT_TRUE(stash->read(hash_of(bytes_of("one"))).ok());
}

TEST_F(Scratch, ADamagedContentOfTheSameSizeGivesWayToo) {
  keep(*open(), 1, {"one", "two"});
  overwrite(object("one"), "onf");
  const auto stash = open();
  auto capture = Capture::begin(*stash, "x", Limits());
  const auto damaged = (*capture)->add(bytes_of("one")), whole = (*capture)->add(bytes_of("two"));
  ASSERT_TRUE(damaged.ok() && whole.ok());
  EXPECT_TRUE(damaged->is_new);
  EXPECT_FALSE(whole->is_new);
  EXPECT_EQ((*capture)->new_bytes(), 3U);
  EXPECT_TRUE(open()->read(damaged->hash).ok());
  EXPECT_THAT(verify(*open(), false).problems, IsEmpty());
}

TEST_F(Scratch, VerifyBesideRecordersFindsNoDamage) {
  keep(*open(), 0, {std::string(8U << 20, 'x')});  // takes a while to hash
  constexpr int kRecordings = 60;
  std::atomic<bool> over = false;
  std::thread recorder([&] {
    const auto stash = open();
    for (int i = 1; i <= kRecordings; ++i) keep(*stash, i, {"content " + std::to_string(i)});
    over = true;
  });
  std::vector<Problem> problems;
  while (!over) {
    for (const Problem& problem : verify(*open(), true).problems) problems.push_back(problem);
  }
  recorder.join();
  EXPECT_THAT(problems, IsEmpty()) << problems.front().path << ": " << problems.front().what;
  for (int i = 1; i <= kRecordings; ++i) {
    struct stat info {};
    ASSERT_EQ(::stat(object("content " + std::to_string(i)).c_str(), &info), 0);
    EXPECT_EQ(info.st_nlink, 2U) << i;
  }
}

TEST_F(Scratch, VerifyRemovesOnlyWhatIsProvenDamaged) {
  keep(*open(), 1, {"one", "two", "three"});
  fs::permissions(object("one"), fs::perms::others_write, fs::perm_options::add);  // refused unread
  overwrite(object("two"), "twp");
  fs::remove(object("three"));
  const VerifyReport report = verify(*open(), true);
  EXPECT_THAT(report.problems, SizeIs(5));  // two contents, three missing ones of the recording
  const auto link = [&](const char* content) { return place_ + "/recordings/" + identity(1) + "/" + hash_of(bytes_of(content)); };
  EXPECT_TRUE(fs::exists(object("one")) && fs::exists(link("one")));
  EXPECT_FALSE(fs::exists(object("two")) || fs::exists(link("two")));
  EXPECT_TRUE(fs::exists(link("three"))) << "the last name of what is whole";
}

TEST_F(Scratch, DamagedEntriesAreNamedAndTheirContentsStay) {
  const auto stash = open();
  keep(*stash, 1, {"one"});
  overwrite(place_ + "/recordings/" + identity(1) + "/entries", "nonsense");
  EXPECT_FALSE(stash->entries_of(identity(1)).ok());
  EXPECT_THAT(verify(*stash, false).problems, SizeIs(1));
  EXPECT_EQ(gc(*stash, {})->contents, 0U);
  EXPECT_TRUE(fs::exists(object("one")));
}

TEST_F(Scratch, StrangersAreRefused) {
  keep(*open(), 1, {"one"});
  EXPECT_EQ(refusal(), "");
  fs::permissions(place_, fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(refusal(), HasSubstr("other users may write"));
  fs::permissions(place_, fs::perms::others_write, fs::perm_options::remove);
  if (::geteuid() != 0) return;  // only root can change the owner of files
  ASSERT_EQ(::chown(place_.c_str(), 12345, 0), 0);
  EXPECT_THAT(refusal(), HasSubstr("belongs to another user"));
  EXPECT_THAT(refusal(Stash::Access::write), HasSubstr("belongs to another user"));
  ASSERT_EQ(::chown(place_.c_str(), 0, 0), 0);
  // A link by another user to a directory of ours.
  fs::rename(place_, folder_ + "/mine");
  fs::create_symlink(folder_ + "/mine", place_);
  EXPECT_EQ(refusal(), "");
  ASSERT_EQ(::lchown(place_.c_str(), 12345, 0), 0);
  EXPECT_THAT(refusal(), HasSubstr("a link of another user"));
  fs::remove(place_);
  fs::rename(folder_ + "/mine", place_);
  ASSERT_EQ(::chown(object("one").c_str(), 12345, 0), 0);
  EXPECT_THAT(open()->read(hash_of(bytes_of("one"))).error().message, HasSubstr("another user may have written it"));
}

TEST_F(Scratch, OtherFilesDoNotBecomeAStash) {
  fs::create_directory(place_);
  for (const char* name : {"notes.txt", "objects", ".hidden", "tmp.save"}) {
    const std::string path = place_ + "/" + name;
    std::ofstream(path) << "mine";
    EXPECT_THAT(refusal(Stash::Access::write), HasSubstr(std::string("not a stash, and not empty (it has ") + name));
    fs::remove(path);
    EXPECT_TRUE(fs::is_empty(place_)) << name;
  }
  std::ofstream(place_ + "/tmp.12.345.1") << "PTD";  // its making was interrupted
  fs::create_directory(place_ + "/lost+found");
  EXPECT_EQ(refusal(Stash::Access::write), "");
  EXPECT_EQ(refusal(), "");
}

TEST_F(Scratch, LinksInsideAreNeverFollowed) {
  const auto stash = open();
  keep(*stash, 1, {"one"});
  std::ofstream(folder_ + "/secret") << "one";  // even with the right content
  fs::remove(object("one"));
  fs::create_symlink(folder_ + "/secret", object("one"));
  EXPECT_FALSE(stash->read(hash_of(bytes_of("one"))).ok());
  fs::create_directory(folder_ + "/elsewhere");
  fs::remove_all(place_ + "/recordings");
  fs::create_symlink(folder_ + "/elsewhere", place_ + "/recordings");
  auto capture = Capture::begin(*stash, "x", Limits());
  ASSERT_TRUE(capture.ok());
  const auto added = (*capture)->add(bytes_of("three"));
  ASSERT_TRUE(added.ok());
  (*capture)->add_entry({1, 0, 0, 0, 5, 0, EntryKind::file, added->hash, "", "/x"});
  EXPECT_FALSE((*capture)->publish(identity(3)).ok());
  EXPECT_TRUE(fs::is_empty(folder_ + "/elsewhere"));
  EXPECT_FALSE((*capture)->publish("../../../elsewhere/x").ok());
}

TEST_F(Scratch, LimitsHold) {
  const auto stash = open();
  Limits limits;
  limits.file_bytes = 10;
  limits.recording_bytes = 15;
  auto capture = Capture::begin(*stash, "x", limits);
  ASSERT_TRUE(capture.ok());
  EXPECT_FALSE((*capture)->add(bytes_of(std::string(11, 'a'))).ok());
  EXPECT_TRUE((*capture)->add(bytes_of(std::string(10, 'a'))).ok());
  EXPECT_THAT((*capture)->add(bytes_of(std::string(10, 'b'))).error().message, HasSubstr("one recording"));
  EXPECT_TRUE((*capture)->add(bytes_of(std::string(10, 'a'))).ok()) << "it is there already";
  limits.total_bytes = 12;
  auto other = Capture::begin(*stash, "x", limits);
  EXPECT_THAT((*other)->add(bytes_of("abc")).error().message, HasSubstr("the stash is full"));
}

/// Permissions of others for a content of the machine's stash: its mode.
unsigned mode_of(const Content& content) {
  struct stat info {};
  const std::string path = std::string(kSystemStash) + "/objects/" + content.hash.substr(0, 2) + "/" + content.hash.substr(2);
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
}

TEST_F(Scratch, TheMachinesStashShowsOthersOnlyWhatTheyCouldReadAnyway) {
  const pid_t child = ::fork();
  if (child == 0) {  // in a separate mount namespace, with its own machine's stash
    std::error_code error;
    fs::create_directories("/var/cache", error);
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/var/cache", "tmpfs", 0, "size=1m,mode=755") != 0)
      ::_exit(77);
    auto stash = Stash::open(kSystemStash, Stash::Access::write);
    Limits limits;
    limits.least_free_bytes = 0;
    const auto add = [&](const std::string& text, const std::string& folder, unsigned mode, bool deleted) {
      auto capture = Capture::begin(**stash, "x", limits);
      const std::string path = folder + "/program";
      std::ofstream(path) << text;
      ::chmod(path.c_str(), mode);
      const Fd fd(::open(path.c_str(), O_RDONLY));
      if (deleted) fs::remove(path);
      const auto content = (*capture)->add(fd.get());
      if (!deleted) fs::remove(path);
      return content.ok() ? mode_of(*content) : 0U;
    };
    fs::create_directory("/var/cache/open");
    fs::create_directory("/var/cache/closed");
    ::chmod("/var/cache/closed", 0700);
    int wrong = 0;
    const auto expect = [&](unsigned is, unsigned want) { wrong = wrong * 2 + (is == want ? 0 : 1); };
    expect(add("a library", "/var/cache/open", 0755, false), 0444);
    expect(add("a program for its owner", "/var/cache/open", 0700, false), 0400);
    expect(add("a program in a folder for its owner", "/var/cache/closed", 0755, false), 0400);
    expect(add("a deleted file", "/var/cache/open", 0755, true), 0400);
    auto capture = Capture::begin(**stash, "x", limits);
    const Fd memory(::memfd_create("code", 0));
    if (::write(memory.get(), "keys", 4) != 4) ::_exit(1);
    const auto kept = (*capture)->add(memory.get());
    expect(kept.ok() ? mode_of(*kept) : 0, 0400);
    expect(mode_of(*(*capture)->add(bytes_of("a piece of memory"))), 0400);
    expect(mode_of(*(*capture)->add(bytes_of("the kernel's own"), Readers::all)), 0444);
    // Content that turns out to be world-readable becomes so, and stays so.
    expect(add("keys", "/var/cache/open", 0644, false), 0444);
    expect(add("keys", "/var/cache/open", 0600, false), 0444);
    ::_exit(wrong == 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs root, for a machine's stash of its own";
  EXPECT_EQ(status, 0);
}

TEST_F(Scratch, AFullDiskLeavesNothingTorn) {
  // In a child, with a separate mount.
  const pid_t child = ::fork();
  if (child == 0) {
    fs::create_directory(place_);
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", place_.c_str(), "tmpfs", 0, "size=256k,mode=700") != 0)
      ::_exit(77);
    const auto stash = open();
    Limits limits;
    limits.least_free_bytes = 0;  // so that the file system itself refuses
    auto capture = Capture::begin(*stash, "x", limits);
    int refused = 0;
    for (int i = 0; i < 20; ++i) {
      const std::string text(30000, static_cast<char>('a' + i));
      const int fd = ::open((folder_ + "/source").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
      if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) ::_exit(1);
      refused += (*capture)->add(fd).ok() ? 0 : 1;
      ::close(fd);
    }
    (*capture).reset();
    const VerifyReport report = verify(*stash, false);
    size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(place_ + "/objects")) files += entry.is_regular_file() ? 1 : 0;
    ::_exit(refused > 5 && report.problems.empty() && report.contents == files && files == static_cast<size_t>(20 - refused) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs root, for a small file system of its own";
  EXPECT_EQ(status, 0);
}

TEST_F(Scratch, GcKeepsWhatIsReferredToAndForgetsWhatItIsTold) {
  const auto stash = open();
  std::ofstream(folder_ + "/perf.data") << "here";
  keep(*stash, 1, {"shared", "of one"}, folder_ + "/perf.data");
  keep(*stash, 2, {"shared", "of two"}, folder_ + "/gone.data");
  keep(*stash, 3, {std::string(1000, 'c')}, folder_ + "/perf.data");
  EXPECT_EQ(gc(*stash, {})->contents, 0U);
  GcOptions gone;
  gone.gone = gone.dry_run = true;
  const auto would = gc(*stash, gone);
  EXPECT_THAT(would->forgotten, testing::ElementsAre(folder_ + "/gone.data"));
  EXPECT_EQ(would->contents, 1U);
  EXPECT_TRUE(fs::exists(object("of two")));
  gone.dry_run = false;
  EXPECT_EQ(gc(*stash, gone)->freed_bytes, 6U);
  EXPECT_FALSE(fs::exists(object("of two")));
  EXPECT_TRUE(fs::exists(object("shared")));
  // By age: one was opened a month ago, the other just now.
  timespec month[2] = {{::time(nullptr) - 30 * 86400, 0}, {::time(nullptr) - 30 * 86400, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (place_ + "/recordings/" + identity(1) + "/entries").c_str(), month, 0), 0);
  GcOptions old;
  old.unused_s = 29 * 86400;
  EXPECT_EQ(gc(*stash, old)->contents, 2U);
  EXPECT_FALSE(fs::exists(object("shared")));
  GcOptions small;
  small.most_bytes = 1000;
  EXPECT_THAT(gc(*stash, small)->forgotten, IsEmpty());
  small.most_bytes = 999;
  EXPECT_THAT(gc(*stash, small)->forgotten, SizeIs(1));
  EXPECT_EQ(stash->total_bytes(), 0U);
  EXPECT_THAT(verify(*stash, false).problems, IsEmpty());
}

TEST_F(Scratch, ARecordingIsGoneWhenNeitherItsPathNorTheOldOneHasIt) {
  const auto stash = open();
  const std::string path = folder_ + "/perf.data";
  for (const int number : {1, 2, 3, 4}) keep(*stash, number, {"of " + std::to_string(number)}, path);
  std::map<std::string, std::string> there = {{path, identity(3)}, {path + ".old", identity(2)}};
  for (const auto& [file, of] : there) std::ofstream(file) << of;
  {
    auto capture = Capture::begin(*stash, path, Limits());
    const auto added = (*capture)->add(bytes_of("in memory"));
    (*capture)->add_entry({4, 0, 0, 0, 9, 0, EntryKind::memory, added->hash, "", "/memfd:x (deleted)"});
    ASSERT_TRUE((*capture)->publish(identity(4)).ok());
  }
  GcOptions options;
  options.gone = true;
  options.identify = [&](const std::string& file) { return there[file]; };
  auto report = gc(*stash, options);
  EXPECT_THAT(report->forgotten, SizeIs(1));
  EXPECT_THAT(report->spared, testing::ElementsAre(path));
  EXPECT_FALSE(stash->entries_of(identity(1)).ok());
  for (const int number : {2, 3, 4}) EXPECT_TRUE(stash->entries_of(identity(number)).ok()) << number;
  // Moved: the one recorded for its path is deleted, the older one is not. An unreadable one may be it.
  fs::remove(path);
  options.dry_run = true;
  EXPECT_THAT(gc(*stash, options)->forgotten, SizeIs(1));
  there[path + ".old"].clear();
  EXPECT_THAT(gc(*stash, options)->forgotten, IsEmpty());
  // By age, the one with memory is forgotten, too.
  options.unused_s = 0;
  EXPECT_THAT(gc(*stash, options)->forgotten, SizeIs(3));
}

TEST_F(Scratch, TheParsedFormIsWhatTheRawFormSaysAndIsMadeAnew) {
  const auto stash = open();
  // This program, which has symbols.
  const int fd = ::open("/proc/self/exe", O_RDONLY);
  auto capture = Capture::begin(*stash, "x", Limits());
  const auto added = (*capture)->add(fd);
  ::close(fd);
  ASSERT_TRUE(added.ok());
  (*capture)->add_entry({1, 0, 0, 0, 1, 0, EntryKind::file, added->hash, "", "/x"});
  ASSERT_TRUE((*capture)->publish(identity(1)).ok());
  const auto same = [](const std::vector<ElfSymbol>& a, const std::vector<ElfSymbol>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ElfSymbol& x, const ElfSymbol& y) {
      return x.address == y.address && x.size_bytes == y.size_bytes && x.name == y.name && x.function == y.function && x.global == y.global;
    });
  };
  const auto elf = ElfFile::open(*stash->read(added->hash));
  ASSERT_TRUE(elf.ok());
  const std::vector<ElfSymbol> raw = (*elf)->read_symbols();
  ASSERT_GT(raw.size(), 100U);
  const std::string parsed = place_ + "/parsed/symbols-5/" + added->hash.substr(0, 2) + "/" + added->hash;
  EXPECT_TRUE(same(symbols_of(*stash, added->hash, **elf), raw));
  ASSERT_TRUE(fs::exists(parsed));
  EXPECT_TRUE(same(symbols_of(*stash, added->hash, **elf), raw));
  // The symbols come from it as long as it is intact.
  std::ifstream file(parsed, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(file), {});
  for (const size_t at : {size_t{3}, size_t{10}, size_t{40}, whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    overwrite(parsed, damaged);
    EXPECT_TRUE(same(symbols_of(*stash, added->hash, **elf), raw)) << at;
    std::ifstream again(parsed, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(again), {}), whole) << "made anew";
    overwrite(parsed, whole.substr(0, at));
    EXPECT_TRUE(same(symbols_of(*stash, added->hash, **elf), raw)) << at;
  }
  // Overlapping names would make gigabytes of a small file; its own checksum is right.
  constexpr size_t kHeader = 24 + kHashDigits, kRow = 24, kNameAt = 16, kLengthAt = 20;
  const auto with_sum = [](std::string text) { return text.replace(24, kHashDigits, hash_of(bytes_of(text.substr(kHeader)))); };
  ASSERT_EQ(with_sum(whole), whole);
  std::string overlapping = whole;
  overlapping.replace(kHeader + kRow + kNameAt, 4, std::string(4, '\0'));
  overlapping.replace(kHeader + kRow + kLengthAt, 4, whole, kHeader + kLengthAt, 4);
  overwrite(parsed, with_sum(overlapping));
  EXPECT_TRUE(same(symbols_of(*stash, added->hash, **elf), raw));
  EXPECT_THAT(verify(*stash, false).problems, IsEmpty());
  GcOptions all;
  all.most_bytes = 0;
  ASSERT_TRUE(gc(*stash, all).ok());
  EXPECT_FALSE(fs::exists(parsed));
}

TEST_F(Scratch, OnlyWhatAStashGaveHasAParsedForm) {
  const auto stash = open();
  keep(*stash, 1, {"one"});
  const auto kept = StashedCode::open({place_}, identity(1));
  ASSERT_NE(kept, nullptr);
  // A folder that looks like a stash, with its own symbols for a file.
  const std::string hash(kHashDigits, 'b'), rest = hash.substr(2), other = folder_ + "/other";
  fs::create_directories(other + "/objects/bb");
  fs::copy_file("/proc/self/exe", other + "/objects/bb/" + rest);
  fs::copy_file(place_ + "/format", other + "/format");
  const auto elf = ElfFile::open(other + "/objects/bb/" + rest);
  ASSERT_TRUE(elf.ok());
  EXPECT_EQ(kept->symbols_of(**elf).size(), (*elf)->read_symbols().size());
  EXPECT_FALSE(fs::exists(other + "/parsed"));
  fs::create_directories(other + "/parsed/symbols-5/bb");
  const std::string none = std::string("ptdsym-5") + std::string(16, '\0') + hash_of({});
  std::ofstream(other + "/parsed/symbols-5/bb/" + hash, std::ios::binary) << none;
  EXPECT_EQ(kept->symbols_of(**elf).size(), (*elf)->read_symbols().size());
}

TEST_F(Scratch, ALaterVersionsStashIsLeftAlone) {
  keep(*open(), 1, {"one"});
  fs::remove(place_ + "/format");
  std::ofstream(place_ + "/format") << "ptdecode-stash 2\n";
  EXPECT_THAT(refusal(), HasSubstr("another version"));
  EXPECT_THAT(refusal(Stash::Access::write), HasSubstr("another version"));
  EXPECT_TRUE(fs::exists(object("one")));
}

TEST_F(Scratch, AStashWithoutItsFormatIsOfAnUnknownVersion) {
  keep(*open(), 1, {"one"});
  fs::remove(place_ + "/format");
  EXPECT_THAT(refusal(), HasSubstr("its file 'format' is missing"));
}

}  // namespace
}  // namespace ptd::stash
