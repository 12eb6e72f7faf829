// A saver on a separate thread: the recorder does not wait for it, what exceeds its capacity is named, and a forked process may continue
// it.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>

#include <csignal>
#include <cstring>
#include <functional>

#include "capture/keep/code_saver_thread.h"
#include "capture/keep/save_code.h"
#include "perfio/perf_writer.h"
#include "perfio/ring/live_event.h"
#include "recording/image/stashed_code.h"
#include "tests/stash/scratch.h"

namespace ptd::stash {
namespace {

using testing::SizeIs;

constexpr uint64_t kPageOfCode = 4096;

uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

/// A memory file mapped by this process.
class MemoryFile {
 public:
  MemoryFile(const char* name, uint64_t size_bytes) : size_bytes_(size_bytes) {
    const int file = ::memfd_create(name, 0);
    struct stat info {};
    if (::ftruncate(file, static_cast<off_t>(size_bytes)) != 0 || ::fstat(file, &info) != 0) std::abort();
    at_ = ::mmap(nullptr, size_bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    ::close(file);
    record.pid = record.tid = ::getpid();
    record.addr = reinterpret_cast<uint64_t>(at_);
    record.size_bytes = size_bytes;
    record.path = std::string("/memfd:") + name + " (deleted)";
    record.maj = major(info.st_dev);
    record.min = minor(info.st_dev);
    record.inode = info.st_ino;
  }
  ~MemoryFile() { ::munmap(at_, size_bytes_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  perfio::MmapRecord record;

 private:
  uint64_t size_bytes_;
  void* at_;
};

perfio::MmapRecord anonymous(uint64_t address) {
  perfio::MmapRecord map;
  map.pid = map.tid = ::getpid();
  map.addr = address;
  map.size_bytes = kPageOfCode;
  map.path = "//anon";
  return map;
}

class Keeping : public Scratch {
 protected:
  void begin(uint64_t queue_bytes = CodeSaverThread::kQueueBytes) {
    SaveOptions options;
    options.stash = place_;
    options.just_recorded = true;
    auto saver = CodeSaverThread::begin(path(), options, queue_bytes);
    ASSERT_TRUE(saver.ok()) << saver.error().message;
    saver_ = std::move(*saver);
  }
  [[nodiscard]] std::string path() const { return folder_ + "/perf.data"; }
  void end_round(uint64_t file_bytes = 0) const {
    saver_->on_round({[] { return monotonic_ns(); }, 0, monotonic_ns(), file_bytes});
  }
  void settle() const {
    while (!saver_->is_settled()) ::usleep(1000);
  }
  /// Writes a recording with these mappings, of at least `size_bytes`. Returns its size.
  uint64_t write_recording(const std::vector<std::pair<perfio::MmapRecord, uint64_t>>& maps, uint64_t size_bytes = 0) const {
    perfio::WriterOptions options;
    perfio::EventAttr attr = perfio::sideband_attr();
    attr.ids = {1};
    options.attrs = {attr};
    auto writer = perfio::PerfWriter::create(path(), options);
    EXPECT_TRUE(writer.ok());
    perfio::RecordContext context;
    context.sample_id.has_time = true;
    for (const auto& [map, time_ns] : maps) {
      context.sample_id.time = time_ns;
      EXPECT_TRUE((*writer)->add_mmap2(map, context).ok());
    }
    while ((*writer)->size_bytes() < size_bytes) EXPECT_TRUE((*writer)->add_finished_round().ok());
    EXPECT_TRUE((*writer)->finish().ok());
    return std::filesystem::file_size(path());
  }
  static std::map<std::string, std::string> reasons(const SaveReport& report) {
    std::map<std::string, std::string> why;
    for (const SaveReport::Skipped& skipped : report.skipped) EXPECT_TRUE(why.emplace(skipped.path, skipped.why).second);
    return why;
  }
  std::unique_ptr<CodeSaverThread> saver_;
};

/// Memory of this process, filled with a letter.
class Memory {
 public:
  explicit Memory(char letter) : at_(::mmap(nullptr, kPageOfCode, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    std::memset(at_, letter, kPageOfCode);
    record = anonymous(reinterpret_cast<uint64_t>(at_));
  }
  ~Memory() { ::munmap(at_, kPageOfCode); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  perfio::MmapRecord record;

 private:
  void* at_;
};

TEST_F(Keeping, MemoryThatWasReadJustBeforeTheEndIsKept) {
  begin();
  const Memory memory('a');
  const uint64_t time_ns = monotonic_ns();
  saver_->on_mapping(memory.record, time_ns);
  end_round();
  settle();
  ::usleep(5000);
  end_round();  // nothing was mapped there in the meantime
  write_recording({{memory.record, time_ns}});
  const auto report = saver_->finish();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(reasons(*report), SizeIs(0));
  const auto entries = open(Stash::Access::read)->entries_of(recording_identity(path()));
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  ASSERT_THAT(entries->entries, SizeIs(1));
  EXPECT_EQ(entries->entries[0].time_ns, time_ns);
}

TEST_F(Keeping, MemoryOfWhichNoLaterRoundTellsIsNot) {
  begin();
  const Memory memory('a');
  saver_->on_mapping(memory.record, 7);
  end_round();
  settle();
  write_recording({{memory.record, 7}});
  const auto report = saver_->finish();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(reasons(*report)["//anon"], testing::HasSubstr("ended before"));
  EXPECT_EQ(report->entries, 0U);
}

TEST_F(Keeping, WhatMayBeCoveredByWhatHadNoRoomIsNotKept) {
  begin(2000);
  const Memory memory('a'), later('b');
  perfio::MmapRecord large = anonymous(1U << 20);
  large.path = "/memfd:" + std::string(3000, 'x');
  for (int i = 0; i < 2; ++i) {  // the second time while some are being omitted already
    large.addr = i == 0 ? large.addr : memory.record.addr;
    saver_->on_mapping(large, 8);
    if (i == 1) saver_->on_mapping(memory.record, 7);  // of another ring
    end_round();
    settle();
  }
  perfio::MmapRecord older = later.record;
  older.path = "[anon:later]";
  saver_->on_mapping(older, 7);  // of another ring, a round later
  for (int i = 0; i < 3; ++i) {
    end_round();
    settle();
    ::usleep(250'000);
  }
  write_recording({{memory.record, 7}});
  const auto report = saver_->finish();
  ASSERT_TRUE(report.ok()) << report.error().message;
  std::map<std::string, std::string> why = reasons(*report);
  EXPECT_THAT(why["//anon"], testing::HasSubstr("too many mappings at once"));
  EXPECT_THAT(why["[anon:later]"], testing::HasSubstr("too many mappings at once"));
  EXPECT_EQ(report->entries, 0U);
}

TEST_F(Keeping, WhatMayBeCoveredByWhatTheKernelLostIsNotKept) {
  begin();
  const Memory memory('a'), kept('b');
  saver_->on_mapping(memory.record, 7);
  saver_->on_lost();
  for (int i = 0; i < 3; ++i) {
    end_round();
    settle();
    ::usleep(250'000);
  }
  saver_->on_mapping(kept.record, 8);  // long after
  for (int i = 0; i < 2; ++i) {
    end_round();
    settle();
    ::usleep(5000);
  }
  write_recording({{memory.record, 7}});
  const auto report = saver_->finish();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(reasons(*report)["//anon"], testing::HasSubstr("too many mappings at once"));
  EXPECT_EQ(report->entries, 1U);
}

TEST_F(Keeping, WhatDoesNotFitIntoTheQueueIsNamed) {
  begin(16 << 10);
  auto* memory = static_cast<char*>(::mmap(nullptr, kPageOfCode, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(memory, 'a', kPageOfCode);
  perfio::MmapRecord own = anonymous(reinterpret_cast<uint64_t>(memory));
  own.path = "[anon:own]";
  saver_->on_mapping(own, 7);
  end_round();
  settle();
  perfio::MmapRecord many = anonymous(1ULL << 32);
  for (uint64_t i = 0; i < 1000; ++i) {
    many.path = "/memfd:" + std::to_string(i) + " (deleted)";
    saver_->on_mapping(many, 8);
  }
  perfio::MmapRecord ordinary = anonymous(1ULL << 33);
  ordinary.path = "/bin/true";
  for (uint64_t i = 0; i < 1000; ++i) saver_->on_mapping(ordinary, 9);
  end_round();
  settle();
  write_recording({{own, 7}});
  const auto report = saver_->finish();
  ASSERT_TRUE(report.ok()) << report.error().message;
  const std::map<std::string, std::string> why = reasons(*report);
  EXPECT_THAT(why, SizeIs(1001)) << "each file, and the memory that may have been mapped over unseen";
  EXPECT_THAT(why.at("/memfd:999 (deleted)"), testing::HasSubstr("too many mappings at once to read them all"));
  EXPECT_THAT(why.at("[anon:own]"), testing::HasSubstr("too many mappings at once"));
  EXPECT_FALSE(why.contains("/bin/true")) << "that is not what a queue is for";
  ::munmap(memory, kPageOfCode);
}

TEST_F(Keeping, ManyNamesAreCountedOnly) {
  begin(1);
  perfio::MmapRecord many = anonymous(1ULL << 32);
  for (uint64_t i = 0; i < 20'000; ++i) {
    many.path = "/memfd:" + std::to_string(i);
    saver_->on_mapping(many, 8);
  }
  end_round();
  write_recording({});
  const auto report = saver_->finish();
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->skipped.size() + report->unnamed, 20'000U);
  EXPECT_THAT(report->skipped, SizeIs(16'384));
}

/// The actions of `heir` in a process that was forked while this one saved, and whose parent is dead. It has ended, and holds no lock.
void in_forked(const std::function<void()>& parent, const std::function<void()>& heir) {
  int done[2] = {-1, -1};
  ASSERT_EQ(::pipe(done), 0);
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const pid_t recorder = ::fork();
  if (recorder == 0) {
    ::close(done[0]);
    parent();
    if (const pid_t second = ::fork(); second != 0) ::_exit(second > 0 ? 0 : 1);  // as if killed: nothing is cleaned up
    while (::getppid() == recorder) ::usleep(1000);
    heir();
    const pid_t own = ::getpid();
    ::_exit(::write(done[1], &own, sizeof own) == sizeof own ? 0 : 1);
  }
  ::close(done[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(recorder, &status, 0), recorder);
  EXPECT_EQ(status, 0);
  pid_t second = -1;
  ASSERT_EQ(::read(done[0], &second, sizeof second), static_cast<ssize_t>(sizeof second)) << "the second process did not come to its end";
  ASSERT_EQ(::waitpid(second, &status, 0), second);
  EXPECT_EQ(status, 0);
  ::close(done[0]);
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

TEST_F(Keeping, AForkGoesOnWhereItsParentWasKilled) {
  const MemoryFile early("early", kPageOfCode), late("late", 2 * kPageOfCode);
  write_recording({{early.record, 7}, {late.record, 9}});
  in_forked(
      [&] {
        begin();
        saver_->on_mapping(early.record, 7);
        end_round();
        settle();
        const MemoryFile large("large", 300U << 20);
        saver_->on_mapping(large.record, 8);
        end_round();
        while (!saver_->pause()) ::usleep(1000);  // it is busy
        saver_->go_on();
        while (!saver_->pause()) ::usleep(1000);
      },
      [&] {
        saver_->take_over();
        saver_->on_mapping(late.record, 9);
        end_round();
        if (!saver_->is_settled() || !saver_->finish().ok()) ::_exit(1);
      });
  if (::geteuid() != 0) GTEST_SKIP() << "/proc/PID/map_files needs root";
  const auto entries = open(Stash::Access::read)->entries_of(recording_identity(path()));
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  std::set<uint64_t> times;
  for (const Entry& entry : entries->entries) EXPECT_TRUE(times.insert(entry.time_ns).second) << "twice";
  EXPECT_THAT(times, testing::IsSupersetOf({7U, 9U}));
  EXPECT_TRUE(std::filesystem::is_empty(place_ + "/incoming"));
}

TEST_F(Keeping, AForkConfirmsWhatALaterRoundOfItsOwnHasShown) {
  write_recording({});
  in_forked(
      [&] {
        begin();
        end_round();
        settle();
        while (!saver_->pause()) ::usleep(1000);
      },
      [&] {
        saver_->take_over();
        const Memory shown('a'), not_shown('b');
        saver_->on_mapping(shown.record, 9);
        end_round();
        ::usleep(5000);
        saver_->on_mapping(not_shown.record, 10);
        end_round();
        const auto report = saver_->finish();
        if (!report.ok() || report->entries != 1) ::_exit(1);
      });
}

TEST_F(Keeping, GcKnowsWhoseItIsThoughItWasKilledAndItsRecordingMoved) {
  const MemoryFile code("code", kPageOfCode);
  const uint64_t file_bytes = write_recording({}, 100'000);  // which has no record of this mapping
  const std::string identity = recording_identity(path());
  EXPECT_EQ(early_identity(path(), 65'536), "") << "what comes behind that changes it";
  EXPECT_EQ(early_identity(path(), file_bytes), identity);
  in_forked(
      [&] {
        begin();
        saver_->on_mapping(code.record, 7);
        end_round(65'536);
        settle();
        ::usleep(300'000);
        end_round(file_bytes);
        settle();
      },
      [] {});
  if (::geteuid() != 0) GTEST_SKIP() << "/proc/PID/map_files needs root";
  std::filesystem::rename(path(), folder_ + "/elsewhere");
  const auto stash = open();
  GcOptions options;
  options.identify = [](const std::string& at) { return recording_identity(at); };
  options.owner_of = recording_of;
  const auto report = gc(*stash, options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(report->adopted, testing::ElementsAre(path()));
  const auto kept = StashedCode::open({place_}, recording_identity(folder_ + "/elsewhere"));
  ASSERT_NE(kept, nullptr);
  const auto found = kept->of_mapping({code.record.path, {}, 0, kPageOfCode, nullptr, code.record.pid, code.record.addr, 7});
  ASSERT_NE(found.file, nullptr);
  EXPECT_EQ(found.file->bytes().size(), kPageOfCode);
}

}  // namespace
}  // namespace ptd::stash
