// TargetThreads: whose hits a trigger counts, from the records of the target's rings.
#include "capture/live/session/target_threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perfio/format/byte_writer.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

constexpr int32_t kFirst = 0x7ffffff0, kSecond = kFirst + 1, kThird = kFirst + 2;  // numbers beyond pid_max: of no thread

std::vector<std::byte> task(uint32_t type, int32_t pid, int32_t tid) {
  std::vector<std::byte> record;
  ByteWriter(record).u32(type).u16(0).u16(32).i32(pid).i32(kFirst).i32(tid).i32(kFirst).u64(0);
  return record;
}

std::vector<std::byte> comm(uint16_t misc, int32_t pid, int32_t tid) {
  std::vector<std::byte> record;
  ByteWriter(record).u32(kRecordComm).u16(misc).u16(24).i32(pid).i32(tid).u64(0);
  return record;
}

TEST(TargetThreads, EverythingContainsAll) {
  TargetChoice target;
  target.everything = true;
  EXPECT_TRUE(TargetThreads(target, {}).contains(kFirst, kSecond));
}

TEST(TargetThreads, ThreadsThatAreStartedFollow) {
  TargetChoice target;
  target.tids = {kFirst};
  for (const bool inherit : {true, false}) {
    target.inherit = inherit;
    TargetThreads threads(target, {kFirst});
    EXPECT_TRUE(threads.contains(kFirst, kFirst));
    EXPECT_FALSE(threads.contains(kFirst, kSecond)) << "another thread of the process";
    threads.on_record(task(kRecordFork, kFirst, kSecond));
    threads.on_record(task(kRecordFork, kThird, kThird));
    EXPECT_EQ(threads.contains(kFirst, kSecond), inherit);
    EXPECT_EQ(threads.contains(kThird, kThird), inherit);
  }
}

TEST(TargetThreads, AThreadWhoseForkWasLostIsOfItsProcess) {
  TargetChoice target;
  target.pids = {kFirst};
  EXPECT_TRUE(TargetThreads(target, {kFirst}).contains(kFirst, kSecond));
  EXPECT_FALSE(TargetThreads(target, {kFirst}).contains(kSecond, kSecond));
  target.inherit = false;
  EXPECT_FALSE(TargetThreads(target, {kFirst}).contains(kFirst, kSecond)) << "it may be new";
}

TEST(TargetThreads, HitsOfAThreadAreReadAfterItsEnd) {
  TargetChoice target;
  target.pids = {kFirst};
  TargetThreads threads(target, {kFirst, kSecond});
  threads.mark_ended();
  threads.on_record(task(kRecordExit, kThird, kSecond));
  threads.forget_ended();
  EXPECT_TRUE(threads.contains(kThird, kSecond));
  threads.mark_ended();
  threads.forget_ended();
  EXPECT_FALSE(threads.contains(kThird, kSecond));
  EXPECT_TRUE(threads.contains(kFirst, kFirst));
}

TEST(TargetThreads, AnExecThatTakesTheNumberOfTheThreadThatEnded) {
  const pid_t child = fork();
  if (child == 0) pause(), _exit(0);
  ASSERT_GT(child, 0);
  TargetChoice target;
  target.tids = {child};
  for (const bool exit_first : {true, false}) {
    TargetThreads threads(target, {child});
    if (exit_first) threads.on_record(task(kRecordExit, child, child));
    threads.on_record(comm(kMiscCommExec, child, child));
    threads.on_record(comm(0, child, kSecond));  // the name of another thread
    if (!exit_first) threads.on_record(task(kRecordExit, child, child));
    threads.mark_ended();
    threads.forget_ended();
    EXPECT_TRUE(threads.contains(child, child)) << exit_first;
    EXPECT_FALSE(threads.contains(child, kSecond));
  }
  TargetThreads threads(target, {child});
  threads.on_record(task(kRecordExit, child, child));
  threads.mark_ended();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  threads.forget_ended();
  EXPECT_FALSE(threads.contains(child, child));
}

TEST(TargetThreads, ALostExitAndRecordsThatAreTooShort) {
  TargetChoice target;
  target.pids = {kFirst};
  TargetThreads threads(target, {kFirst, static_cast<int32_t>(getpid())});
  for (const uint32_t type : {kRecordFork, kRecordExit, kRecordComm}) {
    for (size_t size : {0U, 4U, 8U, 12U, 16U}) threads.on_record(Bytes(task(type, kSecond, kSecond)).first(size));
  }
  threads.forget_ended();
  EXPECT_TRUE(threads.contains(kFirst, kFirst));
  EXPECT_FALSE(threads.contains(kSecond, kSecond));
  std::vector<std::byte> lost;
  ByteWriter(lost).u32(kRecordLost).u16(0).u16(24).u64(1).u64(7);
  threads.on_record(lost);
  threads.forget_ended();
  EXPECT_FALSE(threads.contains(kFirst, kFirst));
  EXPECT_TRUE(threads.contains(getpid(), getpid()));
}

TEST(TargetThreads, TheLogAfterItWasFolded) {
  TargetChoice target;
  target.pids = {kFirst};
  const std::vector<std::byte> name = comm(0, kSecond, kThird), fork_record = task(kRecordFork, kSecond, kSecond);
  TargetThreads whole(target, {kFirst});
  whole.on_entry({EntryKind::record, 0, 0, name});
  EXPECT_TRUE(whole.contains(kSecond, kThird));
  target.pids = {};
  target.tids = {kFirst};
  TargetThreads single(target, {kFirst});
  single.on_entry({EntryKind::record, 0, 0, name});  // it may be of another thread, at the start
  EXPECT_FALSE(single.contains(kSecond, kThird));
  single.on_entry({EntryKind::announcement, 0, 0, fork_record});
  EXPECT_FALSE(single.contains(kSecond, kSecond));
  single.on_entry({EntryKind::record, 0, 0, fork_record});
  EXPECT_TRUE(single.contains(kSecond, kSecond));
}

}  // namespace
}  // namespace ptd::live
