// SessionLog and its folding: live processes stay, ended ones leave nothing, and a killed writer leaves a complete log.
#include "capture/live/session/session_log.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <set>

#include "tests/unit/live/session_feed.h"

namespace ptd::live {
namespace {

using namespace perfio;

Payload comm(int32_t pid, int32_t tid, const std::string& name, bool exec = false) { return CommRecord{pid, tid, name, exec}; }
Payload map(int32_t pid, uint64_t address, const std::string& path) {
  MmapRecord map;
  map.pid = map.tid = pid;
  map.addr = address;
  map.size_bytes = 0x1000;
  map.prot = 5;
  map.path = path;
  return map;
}
Payload task(int32_t pid, int32_t ppid, int32_t tid, int32_t ptid, bool exit) { return TaskRecord{pid, ppid, tid, ptid, 0, exit}; }

/// The final content of the log: names by thread, paths by process.
struct ToldOfSession {
  std::map<int32_t, std::string> names;
  std::map<int32_t, std::multiset<std::string>> paths;
  std::set<uint64_t> symbols;
};

ToldOfSession told_by(const SessionLog& log) {
  ToldOfSession told;
  log.each([&](const LogEntry& entry) {
    Cursor body(entry.bytes.subspan(kRecordHeaderBytes));
    const RecordHeader head = read_record_header(entry.bytes);
    if (head.type == kRecordComm) {
      (void)body.i32();
      const int32_t tid = body.i32();
      told.names[tid] = body.text();
    } else if (head.type == kRecordMmap2) {
      const int32_t pid = body.i32();
      told.paths[pid].insert(Cursor::text_of(entry.bytes.subspan(72)));
    } else if (head.type == kRecordKsymbol) {
      told.symbols.insert(body.u64());
    }
  });
  return told;
}

TEST(SessionLog, WhoIsThereSurvivesManyFolds) {
  const auto log = SessionLog::create(64U << 10, 3);
  ASSERT_TRUE(log.ok());
  Feed feed{**log};
  feed(comm(10, 10, "long"));
  feed(map(10, 0x1000, "/bin/long"));
  feed(map(10, 0x9000, "/lib/first"));
  feed(map(10, 0x9000, "/lib/second"));  // replaces the first one
  feed(task(10, 10, 11, 10, false));     // a thread, which inherits its name
  for (int32_t pid = 100; pid < 3000; ++pid) {
    feed(task(pid, 10, pid, 10, false));
    feed(comm(pid, pid, "short", true));
    feed(map(pid, 0x4000, "/bin/short"));
    feed(task(pid, 10, pid, 10, true));
  }
  feed(task(20, 10, 20, 10, false));
  feed(comm(20, 20, "old", true));
  feed(map(20, 0x1000, "/bin/old"));  // its EXIT is lost
  feed(task(20, 10, 20, 10, false));  // a child without exec: it inherits everything from its parent
  for (int32_t pid = 3000; pid < 6000; ++pid) {
    feed(task(pid, 10, pid, 10, false));
    feed(task(pid, 10, pid, 10, true));
  }
  EXPECT_GT((*log)->folds(), 5U);
  EXPECT_EQ((*log)->forgotten(), 0U);
  const ToldOfSession told = told_by(**log);
  EXPECT_EQ(told.names.at(10), "long");
  EXPECT_EQ(told.names.at(11), "long");
  EXPECT_EQ(told.names.at(20), "long");
  EXPECT_EQ(told.paths.at(10), (std::multiset<std::string>{"/bin/long", "/lib/second"}));
  EXPECT_EQ(told.paths.at(20), told.paths.at(10));
  EXPECT_FALSE(told.names.contains(100)) << "it went long ago";
  EXPECT_EQ((*log)->positions(), (std::vector<uint64_t>{0, feed.position, 0}));
}

// One cpu's ring may be read before another's: an EXIT before its FORK, a mapping before the exec that it belongs to.
TEST(SessionLog, WhatHappenedOnSeveralCpusIsFoldedInOrderOfTime) {
  const auto log = SessionLog::create(64U << 10, 3);
  ASSERT_TRUE(log.ok());
  uint64_t positions[3] = {}, time = 100;
  const auto put = [&](uint16_t ring, uint64_t when, const Payload& payload, uint16_t misc = 0) {
    const std::vector<std::byte> bytes = bytes_of(payload, when, misc);
    positions[ring] += bytes.size();
    (*log)->append({EntryKind::record, ring, positions[ring], bytes});
  };
  put(0, 1, comm(10, 10, "long"));
  put(1, 3, map(10, 0x2000, "/bin/after"));
  put(2, 2, comm(10, 10, "after", true), kMiscCommExec);
  for (int32_t pid = 1000; pid < 3000; ++pid, time += 10) {
    put(1, time + 2, comm(pid, pid, "short", true), kMiscCommExec);
    put(1, time + 3, map(pid, 0x4000, "/bin/short"));
    put(1, time + 4, task(pid, 10, pid, 10, true));
    put(2, time + 1, task(pid, 10, pid, 10, false));
  }
  EXPECT_GT((*log)->folds(), 5U);
  EXPECT_EQ((*log)->forgotten(), 0U);
  const ToldOfSession told = told_by(**log);
  EXPECT_EQ(told.names.at(10), "after");
  EXPECT_EQ(told.paths.at(10), (std::multiset<std::string>{"/bin/after"}));
  EXPECT_FALSE(told.names.contains(1000)) << "it went long ago";
}

// If the kernel lost the EXIT, processes that no longer exist are removed; existing ones stay.
TEST(SessionLog, WhoseEndWasLostIsForgotten) {
  const auto log = SessionLog::create(64U << 10, 3);
  ASSERT_TRUE(log.ok());
  (*log)->ask_who_lives([](int32_t pid) { return pid == 10; });
  Feed feed{**log};
  feed(comm(10, 10, "long"));
  for (int32_t pid = 1000; pid < 6000; ++pid) {
    feed(comm(pid, pid, "short"));
    feed(map(pid, 0x4000, "/bin/short"));
  }
  EXPECT_GT((*log)->folds(), 5U);
  EXPECT_EQ((*log)->forgotten(), 0U);
  const ToldOfSession told = told_by(**log);
  EXPECT_EQ(told.names.at(10), "long");
  EXPECT_EQ(told.names.at(5999), "short") << "the log names it";
  EXPECT_FALSE(told.names.contains(1000));
}

TEST(SessionLog, AThreadHasNotCalledExecItself) {
  const auto log = SessionLog::create(16U << 10, 2);
  ASSERT_TRUE(log.ok());
  Feed feed{**log};
  feed(comm(10, 10, "prog", true), kMiscCommExec);
  feed(task(10, 10, 11, 10, false));
  feed(task(10, 10, 12, 10, false));
  for (int i = 0; i < 2000; ++i) feed(SwitchRecord{});
  EXPECT_GT((*log)->folds(), 2U);
  const ToldOfSession told = told_by(**log);
  for (const int32_t tid : {10, 11, 12}) EXPECT_EQ(told.names.at(tid), "prog") << tid;
}

TEST(SessionLog, ExecLeavesNothingOfTheOldImage) {
  const auto log = SessionLog::create(16U << 10, 2);
  ASSERT_TRUE(log.ok());
  Feed feed{**log};
  feed(comm(10, 10, "before"));
  feed(map(10, 0x1000, "/bin/before"));
  feed(comm(10, 10, "after", true), kMiscCommExec);
  feed(map(10, 0x2000, "/bin/after"));
  for (int i = 0; i < 1000; ++i) feed(SwitchRecord{});
  EXPECT_GT((*log)->folds(), 1U);
  const ToldOfSession told = told_by(**log);
  EXPECT_EQ(told.names.at(10), "after");
  EXPECT_EQ(told.paths.at(10), (std::multiset<std::string>{"/bin/after"}));
}

TEST(SessionLog, KernelCodeIsThereUntilItGoes) {
  const auto log = SessionLog::create(16U << 10, 2);
  ASSERT_TRUE(log.ok());
  Feed feed{**log};
  const auto symbol = [](uint64_t address, bool gone) { return KsymbolRecord{address, 64, 1, gone, "bpf_prog_x"}; };
  feed(symbol(0x1000, false));
  feed(symbol(0x2000, false));
  feed(symbol(0x1000, true));
  for (int i = 0; i < 1000; ++i) feed(SwitchRecord{});
  EXPECT_EQ(told_by(**log).symbols, (std::set<uint64_t>{0x2000}));
}

TEST(SessionLog, TooMuchStateIsCountedNotGrown) {
  const auto log = SessionLog::create(16U << 10, 2);
  ASSERT_TRUE(log.ok());
  Feed feed{**log};
  for (int32_t pid = 1; pid < 2000; ++pid) feed(comm(pid, pid, "many"));
  EXPECT_GT((*log)->forgotten(), 0U);
  EXPECT_LE((*log)->used_bytes(), 16U << 10);
  feed(comm(5000, 5000, "last"));
  EXPECT_EQ(told_by(**log).names.at(5000), "last") << "what is new finds room";
  const std::vector<std::byte> huge(32U << 10);
  (*log)->append({EntryKind::code, 0, 0, huge});
  EXPECT_LE((*log)->used_bytes(), 16U << 10);
}

TEST(SessionLog, AWriterThatIsKilledLeavesAWholeLog) {
  for (int round = 0; round < 20; ++round) {
    const auto log = SessionLog::create(32U << 10, 2);
    ASSERT_TRUE(log.ok());
    Feed feed{**log};
    feed(comm(10, 10, "long"));
    const pid_t child = fork();
    if (child == 0) {
      for (int32_t pid = 100;; ++pid) {
        feed(comm(pid, pid, "short"));
        feed(task(pid, 10, pid, 10, true));
      }
    }
    ASSERT_GT(child, 0);
    while ((*log)->used_bytes() < 1000) usleep(100);
    usleep(static_cast<useconds_t>(round * 700));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    (void)waitpid(child, nullptr, 0);
    const ToldOfSession told = told_by(**log);
    EXPECT_EQ(told.names.at(10), "long");
    uint64_t before = 0, entries = 0;
    (*log)->each([&](const LogEntry& entry) {
      ++entries;
      EXPECT_EQ(read_record_header(entry.bytes).size_bytes, entry.bytes.size());
      if (entry.position != 0) {
        EXPECT_GT(entry.position, before) << "in the order of the ring, nothing twice";
        EXPECT_TRUE(before == 0 || entry.position - before == entry.bytes.size()) << "nothing left out";
        before = entry.position;
      }
    });
    EXPECT_GT(entries, 1U);
    Feed next{**log, (*log)->positions()[1]};  // the next writer continues
    next(comm(11, 11, "next"));
    EXPECT_EQ(told_by(**log).names.at(11), "next");
  }
}

}  // namespace
}  // namespace ptd::live
