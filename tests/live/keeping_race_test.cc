// CodeSaverThread under ThreadSanitizer: the saver that it calls is a plain counter without any lock, so that a race in the queue is a race
// in it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <new>

#include "capture/keep/code_saver_thread.h"
#include "capture/keep/save_code.h"

namespace ptd {
namespace {

/// Counts of the thread's actions; not protected by a lock.
struct Done {
  uint64_t mappings = 0, covers = 0, rounds = 0, looks = 0, last_time_ns = 0, out_of_order = 0, forgotten = 0;
  std::map<std::string, uint64_t> paths;
} done;

constexpr const char *kSlow = "/slow", *kTooMuch = "/too much";

/// The thread is blocked here at kSlow until it is released.
std::atomic<bool> is_held_up, may_go_on;
bool waited_in_vain = false;

void hold_up() {
  constexpr int kMostMs = 20'000;
  is_held_up = true;
  for (int i = 0; i < kMostMs && !may_go_on; ++i) ::usleep(1000);
  waited_in_vain = !may_go_on;
}

}  // namespace

stash::Lock::~Lock() = default;
stash::Capture::~Capture() = default;

Result<std::unique_ptr<CodeSaver>> CodeSaver::begin(const std::string& recording, const SaveOptions& options) {
  return std::unique_ptr<CodeSaver>(new CodeSaver(nullptr, recording, options));
}
Result<std::unique_ptr<CodeSaver>> CodeSaver::heir() const { return Error{}; }
CodeSaver::Interest CodeSaver::interest_in(const perfio::MmapRecord& map) { return map.path.empty() ? Interest::covers : Interest::bytes; }
void CodeSaver::on_mapping(const perfio::MmapRecord& map, uint64_t time_ns) {
  if (map.path == kSlow) hold_up();
  if (map.path == kTooMuch) throw std::bad_alloc();
  ++done.mappings;
  ++done.paths[map.path];
  done.out_of_order += time_ns < done.last_time_ns ? 1 : 0;
  done.last_time_ns = time_ns;
  if (done.mappings % 64 == 0) ::usleep(500);  // a large one
}
void CodeSaver::on_cover(const Cover&) { ++done.covers; }
void CodeSaver::told_until(uint64_t) { ++done.rounds; }
void CodeSaver::forget_memory() { ++done.forgotten; }
void CodeSaver::on_written(uint64_t) {}
void CodeSaver::look(const std::function<uint64_t()>& now_ns, uint64_t) { done.looks += now_ns() == 1 ? 1 : 0; }
Result<SaveReport> CodeSaver::finish(uint64_t) {
  SaveReport report;
  report.entries = done.mappings;
  return report;
}

namespace {

constexpr uint64_t kRounds = 200, kEach = 20;

/// Adds mappings in rounds, each in the wrong order, with pauses in between; returns how many exceeded the capacity.
uint64_t record(uint64_t queue_bytes) {
  done = {};
  auto saver = CodeSaverThread::begin("x", {}, queue_bytes);
  EXPECT_TRUE(saver.ok());
  perfio::MmapRecord map;
  uint64_t time_ns = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (uint64_t i = 0; i < kEach; ++i) {
      map.path = i % 2 == 0 ? "" : "/memfd:" + std::to_string(time_ns + kEach - i);
      (*saver)->on_mapping(map, time_ns + kEach - i);
    }
    time_ns += kEach;
    (*saver)->on_round({[] { return uint64_t{1}; }, 0, time_ns, 0});
    if (round % 7 == 0 && (*saver)->pause()) ::usleep(100);
    if (round % 7 == 3) (*saver)->go_on();
    if (round % 50 == 49) {
      (*saver)->go_on();
      while (!(*saver)->is_settled()) ::usleep(100);
    }
  }
  const auto report = (*saver)->finish();
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report->entries, done.mappings);
  return report->skipped.size() + report->unnamed;
}

TEST(KeepingRace, EverythingIsWorkedThroughInOrder) {
  EXPECT_EQ(record(CodeSaverThread::kQueueBytes), 0U);
  EXPECT_EQ(done.mappings, kRounds * kEach / 2);
  EXPECT_EQ(done.covers, kRounds * kEach / 2);
  EXPECT_EQ(done.rounds, kRounds);
  EXPECT_EQ(done.out_of_order, 0U);
  EXPECT_GT(done.looks, 0U);
}

TEST(KeepingRace, WhatHasNoRoomIsCounted) {
  const uint64_t left_out = record(4096);
  EXPECT_GT(left_out, 0U);
  EXPECT_EQ(done.mappings + left_out, kRounds * kEach / 2);
  EXPECT_GT(done.forgotten, 0U);
}

class Held : public testing::Test {
 protected:
  Held() {
    done = {};
    is_held_up = may_go_on = waited_in_vain = false;
    saver_ = std::move(*CodeSaverThread::begin("x", {}));
  }
  void tell(const char* path) {
    perfio::MmapRecord map;
    map.path = path;
    saver_->on_mapping(map, ++time_ns_);
  }
  void end_round() {
    saver_->on_round({[] { return uint64_t{1}; }, 0, ++time_ns_, 0});
  }
  void hold() {
    tell(kSlow);
    end_round();
    while (!is_held_up) ::usleep(1000);
  }
  /// As at the end of a recording.
  bool settles() {
    constexpr int kMostMs = 10'000;
    for (int i = 0; i < kMostMs; ++i) {
      end_round();
      if (saver_->is_settled()) return true;
      ::usleep(1000);
    }
    return false;
  }
  std::unique_ptr<CodeSaverThread> saver_;
  uint64_t time_ns_ = 0;
};

TEST_F(Held, WhoRecordsDoesNotWaitForAFileThatIsRead) {
  hold();
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 100; ++i) tell("/memfd:of a burst");
    end_round();
    EXPECT_FALSE(saver_->is_settled());
    EXPECT_FALSE(saver_->pause());
    saver_->go_on();
  }
  may_go_on = true;
  EXPECT_TRUE(settles());
  EXPECT_TRUE(saver_->finish().ok());
  EXPECT_FALSE(waited_in_vain);
  EXPECT_EQ(done.mappings, 20'001U);
}

TEST_F(Held, ARecordingThatEndsWhileARestWasAskedForSettles) {
  hold();
  EXPECT_FALSE(saver_->pause());
  tell("/memfd:of the end");
  may_go_on = true;
  EXPECT_TRUE(settles());
  EXPECT_TRUE(saver_->finish().ok());
  EXPECT_EQ(done.mappings, 2U);
}

TEST_F(Held, WhereThereIsNoMemoryTheRestIsNamed) {
  hold();
  for (const char* path : {"/first", kTooMuch, "/waits"}) tell(path);
  end_round();
  tell("/told");
  may_go_on = true;
  EXPECT_TRUE(settles());
  tell("/late");
  end_round();
  EXPECT_TRUE(saver_->pause()) << "nobody is at work";
  const auto report = saver_->finish();
  ASSERT_TRUE(report.ok());
  std::vector<std::string> named;
  for (const SaveReport::Skipped& skipped : report->skipped) {
    named.push_back(skipped.path);
    EXPECT_NE(skipped.why.find("out of memory while reading"), std::string::npos) << skipped.why;
  }
  EXPECT_EQ(named, (std::vector<std::string>{"/late", "/told", kTooMuch, "/waits"}));
  EXPECT_EQ(done.mappings, 2U);
  EXPECT_GT(done.forgotten, 0U);
}

}  // namespace
}  // namespace ptd
