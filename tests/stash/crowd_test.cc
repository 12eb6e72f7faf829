// Many recorders at once, and recorders that are killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "tests/stash/scratch.h"

namespace ptd::stash {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> libraries() {
  std::vector<std::string> contents;
  for (int i = 0; i < 8; ++i) contents.push_back("library " + std::to_string(i) + std::string(200'000 + i, static_cast<char>('a' + i)));
  return contents;
}

TEST_F(Scratch, FiftyRecordersOfTheSameLibrariesLeaveOneCopyEach) {
  constexpr int kRecorders = 50;
  const std::vector<std::string> contents = libraries();
  std::vector<int> files;
  for (const std::string& content : contents) {
    std::ofstream(folder_ + "/" + std::to_string(files.size()), std::ios::binary) << content;
    files.push_back(::open((folder_ + "/" + std::to_string(files.size())).c_str(), O_RDONLY));
  }
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kRecorders; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      char byte = 0;
      ::close(gate[1]);
      (void)!::read(gate[0], &byte, 1);  // all start when the gate is closed
      const auto stash = Stash::open(place_, Stash::Access::write);
      auto capture = stash.ok() ? Capture::begin(**stash, "x", Limits()) : Result<std::unique_ptr<Capture>>(stash.error());
      if (!capture.ok()) ::_exit(2);
      for (const int fd : files) {
        const auto added = (*capture)->add(fd);
        if (!added.ok()) ::_exit(3);
        (*capture)->add_entry({i, 0, 0, 0, added->size_bytes, 0, EntryKind::file, added->hash, "", "/lib"});
      }
      ::_exit((*capture)->publish(identity(i)).ok() ? 0 : 4);
    }
    children.push_back(child);
  }
  ::close(gate[0]);
  ::close(gate[1]);
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const auto stash = open();
  const Listing listing = list(*stash);
  EXPECT_THAT(listing.contents, SizeIs(contents.size()));
  EXPECT_THAT(listing.recordings, SizeIs(kRecorders));
  EXPECT_EQ(listing.in_the_making, 0U);
  for (const std::string& content : contents) {
    struct stat info {};
    ASSERT_EQ(::stat(object(content).c_str(), &info), 0);
    EXPECT_EQ(info.st_nlink, kRecorders + 1U);
  }
  size_t regular = 0;
  for (const auto& entry : fs::recursive_directory_iterator(place_ + "/objects")) regular += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(regular, contents.size());
  const VerifyReport report = verify(*stash, false);
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.entries, kRecorders * contents.size());
}

TEST_F(Scratch, ANewStashIsOpenedByManyAtOnce) {
  constexpr int kRounds = 100, kProcesses = 8;
  for (int round = 0; round < kRounds; ++round) {
    const std::string place = folder_ + "/new." + std::to_string(round);
    int gate[2];
    ASSERT_EQ(::pipe(gate), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        char byte = 0;
        ::close(gate[1]);
        (void)!::read(gate[0], &byte, 1);  // all start when the gate is closed
        ::_exit(Stash::open(place, Stash::Access::write).ok() ? 0 : 1);
      }
      children.push_back(child);
    }
    ::close(gate[0]);
    ::close(gate[1]);
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      ASSERT_EQ(status, 0) << "round " << round;
    }
  }
}

TEST_F(Scratch, AKilledRecorderLeavesNothingTorn) {
  std::minstd_rand random(1);
  ASSERT_NE(open(), nullptr);
  for (int round = 0; round < 60; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto stash = Stash::open(place_, Stash::Access::write);
      for (int i = 0; stash.ok(); ++i) {
        auto capture = Capture::begin(**stash, "x", Limits());
        for (int k = 0; k < 3 && capture.ok(); ++k) {
          const auto added = (*capture)->add(bytes_of(std::string(100'000, static_cast<char>(i + k)) + std::to_string(round)));
          if (added.ok()) (*capture)->add_entry({k, 0, 0, 0, added->size_bytes, 0, EntryKind::file, added->hash, "", "/lib"});
        }
        if (capture.ok()) (void)(*capture)->publish(identity(i % 5));
      }
      ::_exit(1);
    }
    ::usleep(static_cast<useconds_t>(random() % 30'000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto stash = open();
    const VerifyReport report = verify(*stash, false);
    ASSERT_THAT(report.problems, IsEmpty()) << report.problems.front().path << ": " << report.problems.front().what;
  }
  const auto stash = open();
  const auto swept = gc(*stash, {});
  ASSERT_TRUE(swept.ok());
  EXPECT_EQ(list(*stash).in_the_making, 0U);
  EXPECT_THAT(verify(*stash, false).problems, IsEmpty());
  GcOptions all;
  all.most_bytes = 0;
  ASSERT_TRUE(gc(*stash, all).ok());
  for (const auto& entry : fs::recursive_directory_iterator(place_)) {
    if (!entry.is_regular_file()) continue;
    EXPECT_THAT(entry.path().filename().string(), testing::AnyOf("format", "lock"));
  }
}

TEST_F(Scratch, GcLeavesARecorderAtWorkAlone) {
  const auto stash = open();
  auto capture = Capture::begin(*stash, folder_ + "/perf.data", Limits());
  ASSERT_TRUE(capture.ok());
  const auto added = (*capture)->add(bytes_of("deleted by now"));
  ASSERT_TRUE(added.ok());
  (*capture)->add_entry({1, 0, 0, 0, 14, 0, EntryKind::deleted, added->hash, "", "/x (deleted)"});
  EXPECT_EQ(gc(*stash, {})->contents, 0U);
  EXPECT_TRUE((*capture)->publish(identity(1)).ok());
  EXPECT_THAT(verify(*stash, false).problems, IsEmpty());
}

/// A recorder that is killed after it has saved one deleted file.
void keep_and_be_killed(const Stash& of, const std::string& recording, const std::string& identity = {}) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto stash = Stash::open(of.path(), Stash::Access::write);
    auto capture = Capture::begin(**stash, recording, Limits());
    const auto added = (*capture)->add(bytes_of("deleted by now"));
    (*capture)->add_entry({1, 0, 0, 0, 14, 0, EntryKind::deleted, added->hash, "", "/x (deleted)"});
    if (!(*capture)->flush().ok() || (!identity.empty() && !(*capture)->name_recording(identity).ok())) ::_exit(1);
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST_F(Scratch, WhatAKilledRecorderHadBecomesItsRecordings) {
  const auto stash = open();
  keep_and_be_killed(*stash, folder_ + "/perf.data");
  EXPECT_EQ(list(*stash).in_the_making, 1U);
  GcOptions options;
  options.owner_of = [&](const Entries& left) { return left.recording == folder_ + "/perf.data" ? identity(9) : std::string(); };
  const auto report = gc(*stash, options);
  EXPECT_THAT(report->adopted, SizeIs(1));
  EXPECT_EQ(report->contents, 0U);
  const auto entries = stash->entries_of(identity(9));
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(entries->entries.at(0).path, "/x (deleted)");
  EXPECT_TRUE(stash->read(entries->entries.at(0).hash).ok());
}

TEST_F(Scratch, WhatAKilledRecorderHadJoinsWhatItsRecordingHasByNow) {
  const auto stash = open();
  keep_and_be_killed(*stash, folder_ + "/perf.data");
  keep(*stash, 9, {"a library"}, folder_ + "/perf.data");
  GcOptions options;
  options.owner_of = [&](const Entries&) { return identity(9); };
  options.dry_run = true;
  const auto would = gc(*stash, options);
  EXPECT_THAT(would->adopted, SizeIs(1));
  EXPECT_EQ(would->contents, 0U);
  options.dry_run = false;
  const auto report = gc(*stash, options);
  EXPECT_THAT(report->adopted, SizeIs(1));
  EXPECT_EQ(report->contents, 0U);
  const auto entries = stash->entries_of(identity(9));
  ASSERT_TRUE(entries.ok());
  ASSERT_THAT(entries->entries, SizeIs(2));
  for (const Entry& entry : entries->entries) EXPECT_TRUE(stash->read(entry.hash).ok()) << entry.path;
  EXPECT_THAT(verify(*stash, false).problems, IsEmpty());
  EXPECT_EQ(list(*stash).in_the_making, 0U);
  EXPECT_EQ(gc(*stash, options)->contents, 0U);
}

TEST_F(Scratch, AKilledRecordersOwnWordForItsRecordingCounts) {
  const auto stash = open();
  keep_and_be_killed(*stash, folder_ + "/perf.data", identity(7));
  GcOptions options;
  options.owner_of = [&](const Entries&) { return identity(9); };  // another recording has been added by then
  EXPECT_THAT(gc(*stash, options)->adopted, SizeIs(1));
  EXPECT_TRUE(stash->entries_of(identity(7)).ok());
  EXPECT_FALSE(stash->entries_of(identity(9)).ok());
  EXPECT_THAT(stash->top().sub("recordings", false)->sub(identity(7), false)->names(),
              testing::ElementsAre(hash_of(bytes_of("deleted by now")), "entries"));
}

TEST_F(Scratch, WhatCannotBeMadeWholeIsNamedAndStays) {
  const auto stash = open();
  keep_and_be_killed(*stash, folder_ + "/perf.data", identity(7));
  std::ofstream(place_ + "/recordings/" + identity(7)) << "in the way";
  const auto report = gc(*stash, {});
  EXPECT_THAT(report->adopted, IsEmpty());
  ASSERT_THAT(report->troubles, SizeIs(1));
  EXPECT_EQ(report->contents + report->leftovers, 0U);
  fs::remove(place_ + "/recordings/" + identity(7));
  EXPECT_THAT(gc(*stash, {})->adopted, SizeIs(1));
  EXPECT_TRUE(stash->read(hash_of(bytes_of("deleted by now"))).ok());
}

}  // namespace
}  // namespace ptd::stash
