// Code that will not exist when a recording ends: saved while its process lives, dated, and returned as the recording requests it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <set>

#include "capture/keep/code_saver.h"
#include "capture/keep/save_code.h"
#include "perfio/perf_writer.h"
#include "perfio/ring/live_event.h"
#include "recording/image/stashed_code.h"
#include "tests/stash/scratch.h"

namespace ptd::stash {
namespace {

using testing::SizeIs;

constexpr uint64_t kPage = 4096;

/// A process with executable memory: it shows `text` of it, and changes it on request.
class Child {
 public:
  Child() {
    if (::pipe(ask_) != 0 || ::pipe(answer_) != 0) std::abort();
    const int file = ::memfd_create("code", 0);
    if (::fstat(file, &info_) != 0) std::abort();
    memory_text_ = std::string(kPage, 'm');
    if (::write(file, memory_text_.data(), kPage) != static_cast<ssize_t>(kPage)) std::abort();
    anonymous_ = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    file_ = ::mmap(nullptr, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    std::memset(anonymous_, 'a', kPage);
    ::close(file);
    pid_ = ::fork();
    if (pid_ != 0) return;
    char letter = 0;
    while (::read(ask_[0], &letter, 1) == 1) {
      std::memset(static_cast<char*>(anonymous_) + 100, letter, 10);
      if (::write(answer_[1], &letter, 1) != 1) break;
    }
    ::_exit(0);
  }
  ~Child() {
    end();
    ::munmap(anonymous_, kPage);
    ::munmap(file_, kPage);
    for (const int fd : {ask_[0], ask_[1], answer_[0], answer_[1]}) ::close(fd);
  }
  void change(char letter) const {
    if (::write(ask_[1], &letter, 1) != 1 || ::read(answer_[0], &letter, 1) != 1) std::abort();
  }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  perfio::MmapRecord anonymous() const { return record(anonymous_, "//anon"); }
  perfio::MmapRecord memory() const {
    perfio::MmapRecord map = record(file_, "/memfd:code (deleted)");
    map.maj = major(info_.st_dev);
    map.min = minor(info_.st_dev);
    map.inode = info_.st_ino;
    return map;
  }
  const std::string& memory_text() const { return memory_text_; }
  int32_t pid() const { return pid_; }

 private:
  perfio::MmapRecord record(const void* at, const char* path) const {
    perfio::MmapRecord map;
    map.pid = map.tid = pid_;
    map.addr = reinterpret_cast<uint64_t>(at);
    map.size_bytes = kPage;
    map.path = path;
    return map;
  }
  int ask_[2] = {-1, -1}, answer_[2] = {-1, -1};
  void *anonymous_ = nullptr, *file_ = nullptr;
  std::string memory_text_;
  struct stat info_ {};
  pid_t pid_ = -1;
};

std::string text_of(const std::shared_ptr<const MappedFile>& file) {
  return file ? std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()) : std::string();
}

class Live : public Scratch {
 protected:
  Live() {
    options_.stash = place_;
    options_.just_recorded = true;
    auto saver = CodeSaver::begin(folder_ + "/perf.data", options_);
    EXPECT_TRUE(saver.ok());
    saver_ = std::move(*saver);
  }
  /// Scans now, as long after the last scan as required for a new one.
  void look() {
    ::usleep(300'000);
    saver_->look([this] { return now_ += 10; });
    saver_->told_until(~uint64_t{0});  // nothing was mapped over it in the meantime
    saver_->look([] { return uint64_t{0}; });
  }
  /// Returns what is known before the end, by reading the capture's own folder.
  Entries flushed() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place_ + "/incoming")) {
      if (entry.path().filename() != "entries") continue;
      std::ifstream file(entry.path());
      const auto entries = parse_entries(std::string(std::istreambuf_iterator<char>(file), {}));
      return entries.ok() ? *entries : Entries();
    }
    return {};
  }
  SaveOptions options_;
  std::unique_ptr<CodeSaver> saver_;
  uint64_t now_ = 1000;
};

TEST_F(Live, AFileInMemoryIsKeptAsLongAsItsProcessLives) {
  Child child;
  saver_->on_mapping(child.memory(), 7);
  look();
  const Entries entries = flushed();
  if (entries.entries.empty() && ::geteuid() != 0) GTEST_SKIP() << "/proc/PID/map_files needs root";
  ASSERT_THAT(entries.entries, SizeIs(1));
  EXPECT_EQ(entries.entries[0].kind, EntryKind::memory);
  EXPECT_EQ(entries.entries[0].time_ns, 7U);
  EXPECT_EQ(entries.entries[0].hash, hash_of(bytes_of(child.memory_text())));
}

TEST_F(Live, AFileThatIsMappedWhereAnotherOneWasIsNotTheOtherOne) {
  Child child;
  perfio::MmapRecord other = child.memory();
  ++other.inode;
  saver_->on_mapping(other, 7);
  perfio::MmapRecord built = child.memory();  // the kernel reports a build id instead of the inode
  built.inode = built.maj = built.min = 0;
  built.build_id = std::string(20, 'b');
  saver_->on_mapping(built, 8);
  perfio::MmapRecord unknown = child.memory();
  unknown.inode = 0;
  saver_->on_mapping(unknown, 9);
  look();
  EXPECT_THAT(flushed().entries, SizeIs(0));
}

TEST_F(Live, MemoryIsCopiedAgainWhenItLooksDifferent) {
  Child child;
  saver_->on_mapping(child.anonymous(), 7);
  look();
  look();  // unchanged: reported with the change that follows, which it dates
  child.change('b');
  look();
  child.change('c');
  look();
  child.end();
  look();  // unmapped: ignored
  Entries entries = flushed();
  ASSERT_THAT(entries.entries, SizeIs(4));
  EXPECT_EQ(entries.entries[0].time_ns, 7U);
  EXPECT_EQ(entries.entries[1].hash, entries.entries[0].hash);
  for (const Entry& entry : entries.entries) EXPECT_EQ(entry.kind, EntryKind::anonymous);
  // Each change is between the readings before and after it.
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_GT(entries.entries[i].time_ns, entries.entries[i].file_offset_bytes);
    EXPECT_GT(entries.entries[i].file_offset_bytes, entries.entries[i - 1].file_offset_bytes);
  }
  // As read by the recording's reader.
  const auto stash = open();
  auto capture = Capture::begin(*stash, "x", Limits());
  for (const Entry& entry : entries.entries) {
    const auto content = (*capture)->add(bytes_of(text_of(*stash->read(entry.hash))));
    ASSERT_TRUE(content.ok());
    (*capture)->add_entry(entry);
  }
  ASSERT_TRUE((*capture)->publish(identity(1)).ok());
  const auto kept = StashedCode::open({place_}, identity(1));
  ASSERT_NE(kept, nullptr);
  const perfio::MmapRecord map = child.anonymous();
  MappedPath wanted{"//anon", {}, 0, kPage, nullptr, entries.entries[0].pid, map.addr, 7};
  const auto first = kept->of_mapping(wanted);
  EXPECT_TRUE(first.whole_is_mapping);
  EXPECT_EQ(text_of(first.file), std::string(kPage, 'a'));
  const auto later = kept->later_copies(wanted);
  ASSERT_THAT(later, SizeIs(2));
  EXPECT_EQ(text_of(later[0].file).substr(98, 14), "aabbbbbbbbbbaa");
  EXPECT_EQ(text_of(later[1].file).substr(98, 14), "aaccccccccccaa");
  // The reading before the change, not the saved one: otherwise a mapping without changes for long could have changed at any time in
  // between.
  EXPECT_EQ(later[0].since_ns, entries.entries[1].file_offset_bytes);
  EXPECT_EQ(later[0].until_ns, entries.entries[2].time_ns);
  EXPECT_EQ(later[1].since_ns, entries.entries[2].file_offset_bytes);
  EXPECT_EQ(later[1].until_ns, entries.entries[3].time_ns);
  wanted.time_ns = 8;  // another mapping
  EXPECT_EQ(kept->of_mapping(wanted).file, nullptr);
  EXPECT_THAT(kept->later_copies(wanted), SizeIs(0));
}

/// Much memory that this process writes and that is mapped by a child.
class BigChild {
 public:
  BigChild()
      : memory_(static_cast<char*>(::mmap(nullptr, kPieces * kPieceBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (memory_ == MAP_FAILED) std::abort();
    std::memset(memory_, 'a', kPieces * kPieceBytes);
    pid_ = ::fork();
    if (pid_ != 0) return;
    while (true) ::pause();
  }
  ~BigChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(memory_, kPieces * kPieceBytes);
  }
  char* piece(size_t number) const { return memory_ + number * kPieceBytes; }
  perfio::MmapRecord record(size_t number) const {
    perfio::MmapRecord map;
    map.pid = map.tid = pid_;
    map.addr = reinterpret_cast<uint64_t>(piece(number));
    map.size_bytes = kPieceBytes;
    map.path = "//anon";
    return map;
  }
  static constexpr size_t kPieces = 7, kPieceBytes = 16U << 20;

 private:
  char* memory_;
  pid_t pid_ = -1;
};

TEST_F(Live, MuchMemoryIsLookedAtInTurn) {
  const BigChild child;
  for (size_t i = 0; i < BigChild::kPieces; ++i) saver_->on_mapping(child.record(i), 7);
  look();
  ASSERT_THAT(flushed().entries, SizeIs(BigChild::kPieces));
  for (size_t i = 0; i < BigChild::kPieces; ++i) child.piece(i)[5] = 'b';
  for (int i = 0; i < 3; ++i) look();
  std::set<std::pair<uint64_t, std::string>> seen;
  for (const Entry& entry : flushed().entries) seen.emplace(entry.address, entry.hash);
  EXPECT_THAT(seen, SizeIs(2 * BigChild::kPieces)) << "each before and after its change";
}

TEST_F(Live, MemoryThatIsMappedOverIsLookedAtNoMore) {
  Child child;
  saver_->on_mapping(child.anonymous(), 7);
  look();
  perfio::MmapRecord over = child.anonymous();
  over.path = "/bin/true";
  saver_->on_mapping(over, 9);
  child.change('b');
  look();
  EXPECT_THAT(flushed().entries, SizeIs(1));
}

TEST_F(Live, OfTwoMappingsAtOneAddressTheSecondHasTheMemory) {
  Child child;
  saver_->on_mapping(child.anonymous(), 7);
  saver_->on_mapping(child.anonymous(), 9);  // before the first one was read
  look();
  ASSERT_THAT(flushed().entries, SizeIs(1));
  EXPECT_EQ(flushed().entries[0].time_ns, 9U);
}

TEST_F(Live, ASparseFileThatIsTooLargeIsNotRead) {
  const int file = ::memfd_create("doublemapper", 0);
  ASSERT_EQ(::ftruncate(file, off_t{256} << 30), 0);
  struct stat info {};
  ASSERT_EQ(::fstat(file, &info), 0);
  constexpr int kMappings = 20;
  perfio::MmapRecord map;
  map.pid = map.tid = ::getpid();
  map.size_bytes = kPage;
  map.path = "/memfd:doublemapper (deleted)";
  map.maj = major(info.st_dev);
  map.min = minor(info.st_dev);
  map.inode = info.st_ino;
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const double before = used();
  for (int i = 0; i < kMappings; ++i) {
    void* at = ::mmap(nullptr, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, off_t{i} * 2 * kPage);
    map.addr = reinterpret_cast<uint64_t>(at);
    saver_->on_mapping(map, 7);
    ::munmap(at, kPage);
  }
  EXPECT_LT(used() - before, 1.0);  // a GiB each would take many seconds
  ::close(file);
  look();
  EXPECT_THAT(flushed().entries, SizeIs(0));
}

TEST_F(Live, ADeletedFileThatIsMappedOftenIsReadOnce) {
  const std::string path = folder_ + "/library";
  std::ofstream(path) << std::string(8U << 20, 'x');
  const int file = ::open(path.c_str(), O_RDONLY);
  ::unlink(path.c_str());
  struct stat info {};
  struct statfs system {};
  ASSERT_EQ(::fstat(file, &info), 0);
  if (::fstatfs(file, &system) != 0 || system.f_type == 0x01021994) GTEST_SKIP() << "the temporary files are in memory";
  void* at = ::mmap(nullptr, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
  perfio::MmapRecord map;
  map.pid = map.tid = ::getpid();
  map.addr = reinterpret_cast<uint64_t>(at);
  map.size_bytes = kPage;
  map.path = path + " (deleted)";
  map.maj = major(info.st_dev);
  map.min = minor(info.st_dev);
  map.inode = info.st_ino;
  const auto bytes_read = [] {
    std::ifstream io("/proc/self/io");
    std::string word;
    uint64_t count = 0;
    io >> word >> count;
    return count;
  };
  const uint64_t before = bytes_read();
  for (uint64_t i = 0; i < 20; ++i) saver_->on_mapping(map, 7 + i);
  EXPECT_LT(bytes_read() - before, 5 * (8U << 20));  // hashed, copied, scanned
  ::munmap(at, kPage);
  ::close(file);
  look();
  EXPECT_THAT(flushed().entries, SizeIs(20));
}

TEST_F(Live, AFileThatIsWrittenThroughAnotherMappingIsMemory) {
  const int file = ::memfd_create("doublemapper", MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(file, 2 * kPage), 0);
  struct stat info {};
  ASSERT_EQ(::fstat(file, &info), 0);
  auto* writer = static_cast<char*>(::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  void* code = ::mmap(nullptr, kPage, PROT_READ | PROT_EXEC, MAP_SHARED, file, kPage);
  perfio::MmapRecord map;
  map.pid = map.tid = ::getpid();
  map.addr = reinterpret_cast<uint64_t>(code);
  map.size_bytes = map.file_offset_bytes = kPage;
  map.path = "/memfd:doublemapper (deleted)";
  map.maj = major(info.st_dev);
  map.min = minor(info.st_dev);
  map.inode = info.st_ino;
  map.flags = MAP_SHARED;
  saver_->on_mapping(map, 7);
  look();
  struct stat after {};
  ASSERT_EQ(::fstat(file, &after), 0);
  EXPECT_EQ(after.st_blocks, 0) << "looking made memory of holes";
  std::memset(writer + kPage, 'w', kPage);  // the code, after its record
  look();
  const Entries entries = flushed();
  ASSERT_THAT(entries.entries, SizeIs(3));  // the second: read once more before the change
  for (const Entry& entry : entries.entries) EXPECT_EQ(entry.kind, EntryKind::anonymous);
  EXPECT_EQ(entries.entries[0].hash, hash_of(bytes_of(std::string(kPage, '\0'))));
  EXPECT_EQ(entries.entries[1].hash, entries.entries[0].hash);
  EXPECT_EQ(entries.entries[2].hash, hash_of(bytes_of(std::string(kPage, 'w'))));
  // It can no longer be written to: it is a file.
  ::munmap(writer, 2 * kPage);
  ::munmap(code, kPage);
  ASSERT_EQ(::fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), 0);
  const int reader = ::open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::mmap(code, kPage, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, reader, kPage), code);
  saver_->on_mapping(map, 9);
  look();
  EXPECT_EQ(flushed().entries.back().kind, EntryKind::memory);
  ::munmap(code, kPage);
  ::close(reader);
  ::close(file);
}

TEST_F(Live, WhatIsLeftOutIsNamedWithTheReason) {
  Child child;
  perfio::MmapRecord large = child.anonymous();
  large.size_bytes = 17U << 20;
  large.path = "[anon:large]";
  saver_->on_mapping(large, 7);
  perfio::MmapRecord many = child.anonymous();
  for (uint64_t i = 0; i <= 4096; ++i) {
    many.addr = (1ULL << 32) + i * kPage;
    many.path = i < 4096 ? "[anon:gone]" : "[anon:more]";
    saver_->on_mapping(many, 7);
  }
  look();  // nothing can be read there
  perfio::EventAttr attr = perfio::sideband_attr();
  attr.ids = {1};
  perfio::WriterOptions writer_options;
  writer_options.attrs = {attr};
  auto writer = perfio::PerfWriter::create(folder_ + "/perf.data", writer_options);
  ASSERT_TRUE(writer.ok());
  perfio::RecordContext context;
  for (const char* path : {"/memfd:lost", "/memfd:wrong"}) {
    many = child.memory();
    many.path = path;
    if (many.path == "/memfd:wrong") {
      ++many.inode;
      saver_->on_mapping(many, 8);
    }
    ASSERT_TRUE((*writer)->add_mmap(many, context).ok());
  }
  ASSERT_TRUE((*writer)->finish().ok());
  child.end();
  const auto report = saver_->finish();
  ASSERT_TRUE(report.ok()) << report.error().message;
  std::map<std::string, std::string> why;
  for (const auto& skipped : report->skipped) EXPECT_TRUE(why.emplace(skipped.path, skipped.why).second);
  EXPECT_THAT(why["[anon:large]"], testing::HasSubstr("larger than 16 MiB"));
  EXPECT_THAT(why["[anon:more]"], testing::HasSubstr("only the first 4096"));
  EXPECT_THAT(why["[anon:gone]"], testing::HasSubstr("ended before"));
  EXPECT_THAT(why["/memfd:lost"], testing::HasSubstr("only in memory, and its process has ended"));
  EXPECT_THAT(why["/memfd:wrong"], testing::HasSubstr("another file was mapped there"));  // not the content at the end
}

TEST_F(Live, WithoutAClockNothingIsDated) {
  Child child;
  saver_->on_mapping(child.anonymous(), 7);
  ::usleep(300'000);
  saver_->look([] { return uint64_t{0}; });
  child.change('b');
  ::usleep(300'000);
  saver_->look([] { return uint64_t{0}; });
  saver_->told_until(~uint64_t{0});
  saver_->look([] { return uint64_t{0}; });
  EXPECT_THAT(flushed().entries, SizeIs(1));
}

TEST_F(Live, ACopyOfWhatWasMappedOverMeanwhileIsNone) {
  Child child;
  const auto take_copy = [&](uint64_t time_ns) {
    saver_->on_mapping(child.anonymous(), time_ns);
    ::usleep(300'000);
    saver_->look([this] { return now_ += 10; });  // between 1000 and 1100
  };
  const auto cover = [&](uint64_t time_ns) {
    const perfio::MmapRecord map = child.anonymous();
    saver_->on_cover({map.pid, map.addr, map.size_bytes, time_ns});
  };
  take_copy(7);
  cover(900);  // its record arrives only now
  take_copy(950);
  cover(2000);
  now_ = 3000;
  take_copy(2500);
  cover(2400);  // of another cpu's ring, read later: accepted
  EXPECT_THAT(flushed().entries, SizeIs(0)) << "nobody knows as yet";
  saver_->told_until(~uint64_t{0});
  saver_->look([] { return uint64_t{0}; });
  const Entries entries = flushed();
  ASSERT_THAT(entries.entries, SizeIs(2));
  EXPECT_EQ(entries.entries[0].time_ns, 950U);
  EXPECT_EQ(entries.entries[1].time_ns, 2500U);
}

/// Records of several rings, which are read one after the other.
class OutOfOrder : public Live {
 protected:
  std::map<std::string, std::string> reasons() {
    write_recording(folder_ + "/perf.data", {}, 1);
    const auto report = saver_->finish();
    std::map<std::string, std::string> why;
    EXPECT_TRUE(report.ok());
    if (report.ok())
      for (const SaveReport::Skipped& skipped : report->skipped) why[skipped.path] = skipped.why;
    return why;
  }
  static perfio::MmapRecord named(perfio::MmapRecord map, const char* path) {
    map.path = path;
    return map;
  }
};

TEST_F(OutOfOrder, AnOlderMappingThatIsToldLaterHasNotTheMemory) {
  const Child child;
  saver_->on_mapping(named(child.anonymous(), "[anon:newer]"), 2500);
  now_ = 3000;
  saver_->look([this] { return now_ += 10; });
  saver_->told_until(1);
  saver_->on_mapping(named(child.anonymous(), "[anon:older]"), 2400);
  look();
  const Entries entries = flushed();
  ASSERT_THAT(entries.entries, SizeIs(1));
  EXPECT_EQ(entries.entries[0].time_ns, 2500U);
  EXPECT_EQ(entries.entries[0].path, "[anon:newer]");
  EXPECT_THAT(reasons()["[anon:older]"], testing::HasSubstr("mapped over"));
}

TEST_F(OutOfOrder, AnOlderMappingUnderAFileHasNotItsMemory) {
  const Child child;
  now_ = 3000;
  saver_->on_mapping(named(child.anonymous(), "/usr/lib/file.so"), 2500);
  saver_->told_until(1);
  saver_->on_mapping(named(child.anonymous(), "[anon:older]"), 2400);
  look();
  EXPECT_THAT(flushed().entries, SizeIs(0));
  EXPECT_THAT(reasons()["[anon:older]"], testing::HasSubstr("mapped over"));
}

TEST_F(OutOfOrder, ACopyThatOutlivesItsProcessIsStillCovered) {
  Child child;
  now_ = 3000;
  const perfio::MmapRecord older = named(child.anonymous(), "[anon:older]");
  saver_->on_mapping(older, 2500);
  saver_->look([this] { return now_ += 10; });  // the content since 2600
  child.end();
  ::usleep(300'000);
  saver_->look([this] { return now_ += 10; });  // unmapped
  saver_->on_mapping(named(older, "/usr/lib/file.so"), 2600);
  look();
  EXPECT_THAT(flushed().entries, SizeIs(0));
  EXPECT_THAT(reasons()["[anon:older]"], testing::HasSubstr("mapped over"));
}

TEST_F(OutOfOrder, AHeldCopyThatIsForgottenIsNamed) {
  Child child;
  saver_->on_mapping(named(child.anonymous(), "[anon:held]"), 7);
  saver_->look([this] { return now_ += 10; });
  child.end();
  ::usleep(300'000);
  saver_->look([this] { return now_ += 10; });  // its region is unmapped
  saver_->forget_memory();
  look();
  EXPECT_THAT(flushed().entries, SizeIs(0));
  EXPECT_THAT(reasons()["[anon:held]"], testing::HasSubstr("too many mappings at once"));
}

TEST_F(OutOfOrder, WhatIsCoveredIsWhatSomethingNewerOverlaps) {
  constexpr int32_t kNobody = 1 << 30;
  std::vector<CodeSaver::Cover> told;
  std::map<std::string, bool> covered;
  uint64_t random = 1;
  const auto below = [&](uint64_t end) {
    random = random * 6364136223846793005 + 1442695040888963407;
    return (random >> 33) % end;
  };
  for (size_t i = 0; i < 2000; ++i) {
    CodeSaver::Cover cover = {kNobody + static_cast<int32_t>(below(2)), below(200) * kPage, (1 + below(8)) * kPage, 1 + i / 4 + below(100)};
    if (below(3) == 0) {
      saver_->on_cover(cover);
    } else {
      perfio::MmapRecord map;
      map.pid = map.tid = cover.pid;
      map.addr = cover.address;
      map.size_bytes = cover.size_bytes;
      map.path = "[anon:" + std::to_string(i) + "]";
      covered[map.path] = std::any_of(told.begin(), told.end(), [&](const CodeSaver::Cover& other) {
        return other.pid == cover.pid && other.address < cover.address + cover.size_bytes &&
               cover.address < other.address + other.size_bytes && other.time_ns > cover.time_ns;
      });
      saver_->on_mapping(map, cover.time_ns);
      saver_->look([this] { return now_ += 10; });
    }
    told.push_back(cover);
  }
  const auto why = reasons();
  size_t found = 0;
  for (const auto& [path, is_covered] : covered) {
    EXPECT_THAT(why.at(path), testing::HasSubstr(is_covered ? "mapped over" : "ended before its memory")) << path;
    found += is_covered ? 1 : 0;
  }
  EXPECT_GT(found, 100U);
  EXPECT_LT(found, covered.size() - 100);
}

}  // namespace
}  // namespace ptd::stash
