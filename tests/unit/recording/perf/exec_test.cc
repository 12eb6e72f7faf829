// Sideband fold: COMM records of exec that contradict themselves or are missing, and names that others give.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "perfio/format/wire.h"
#include "recording/rename_places.h"
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

bool is_contradiction(const Finding& finding) {
  return finding.kind == FindingKind::bad_record && finding.what.find("contradicts itself") != std::string::npos;
}

// One of the four numbers of an exec is wrong by one bit.
TEST_F(Fold, AnExecWithOneWrongNumberIsOfTheOther) {
  for (int wrong = 0; wrong < 4; ++wrong) {
    for (int bit = 0; bit < 32; ++bit) {
      start();
      comm(10, 10, "shell", false, 0);
      comm(8, 8, "other", false, 0);
      map(10, 0x400000, "/bin/one", 0);
      map(8, 0x400000, "/bin/one", 0);
      int32_t numbers[] = {10, 10, 10, 10};
      numbers[wrong] ^= static_cast<int32_t>(1U << bit);
      feed(perfio::CommRecord{numbers[0], numbers[1], "two", true}, 2000, numbers[2], numbers[3]);
      map(10, 0x400000, "/bin/two", 2001);
      finish();
      EXPECT_EQ(user_byte(10, 0x400000 + kCode, 2500), 0x90) << wrong << " bit " << bit;
      EXPECT_EQ(user_byte(8, 0x400000 + kCode, 2500), 0x55) << wrong << " bit " << bit;
      EXPECT_EQ(data_->thread_names.at(10), "two") << wrong << " bit " << bit;
      EXPECT_EQ(data_->thread_names.at(8), "other") << wrong << " bit " << bit;
      const auto& findings = data_->timeline.findings();
      EXPECT_EQ(std::ranges::count_if(findings, is_contradiction), 1) << wrong << " bit " << bit;
    }
  }
}

// The name of a thread may be written by another one, and perf's own records and some events have no task in their trailer.
TEST_F(Fold, OtherNamesAreNoContradiction) {
  feed(perfio::CommRecord{10, 12, "named", false}, 1000, 10, 11);
  feed(perfio::CommRecord{20, 20, "begun", true}, 0, 0, 0);
  feed(perfio::CommRecord{20, 20, "begun", true}, 1000);
  finish();
  EXPECT_EQ(std::ranges::count_if(data_->timeline.findings(), is_contradiction), 0);
  EXPECT_EQ(data_->thread_names.at(12), "named");
  EXPECT_EQ(data_->thread_names.at(20), "begun");
}

// A thread that is not the first of its process calls exec: it was on the cpu by its own number, and has the number of its process from
// then on.
TEST_F(Fold, AThreadThatCallsExecRunsTheNewProgram) {
  const auto come = [this](int32_t pid, int32_t tid, uint64_t time, bool out) {
    perfio::SwitchRecord record;
    record.cpu_wide = true;
    record.out = out;
    feed(record, time, pid, tid, 3);
  };
  for (const bool by_sample : {false, true}) {
    start();
    comm(10, 10, "one", true, 100);
    map(10, 0x400000, "/bin/one", 101);
    fork(10, 10, 11, 200);
    if (by_sample) {
      feed(perfio::SchedSwitchSample{0, 11}, 1000, 0, 0, 3);
    } else {
      come(10, 11, 1000, false);
    }
    feed(perfio::CommRecord{10, 10, "two", true}, 2000, 10, 10, 3);
    map(10, 0x400000, "/bin/two", 2001);
    by_sample ? feed(perfio::SchedSwitchSample{10, 0}, 3000, 10, 10, 3) : come(10, 10, 3000, true);
    finish();
    const Context before = data_->contexts.at_cpu(3, TimeNs{1500}), after = data_->contexts.at_cpu(3, TimeNs{2500});
    EXPECT_EQ(before.tid, 11) << by_sample;
    EXPECT_EQ(byte_at(before.space, 0x400000 + kCode, 1500), 0x55) << by_sample;
    EXPECT_EQ(after.tid, 10) << by_sample;
    EXPECT_EQ(byte_at(after.space, 0x400000 + kCode, 2500), 0x90) << by_sample;
    EXPECT_NE(data_->contexts.at_cpu(3, TimeNs{3500}).tid, 10) << by_sample;
    EXPECT_TRUE(data_->timeline.findings().empty()) << by_sample;
  }
}

// No record names the program of before; a trace that begins with exec has none. There, the kernel writes ITRACE_START directly before
// COMM.
TEST_F(Fold, AnUnnamedThreadThatCallsExecRanAnotherProgramBefore) {
  constexpr uint64_t kExec = 10'000'000;
  const auto trace_starts = [this](uint64_t time) { feed(perfio::ItraceStartRecord{10, 10}, time, 10, 10); };
  const std::vector<std::pair<bool, std::function<void()>>> rows{
      {true, [] {}},
      {false, [&] { trace_starts(kExec - 100); }},
      {true, [&] { trace_starts(kExec - 1'000'000); }},
      {true, [&] { trace_starts(kExec - 100), feed(perfio::SwitchRecord{}, kExec - 50, 10, 10); }},
      {true,
       [&] {
         trace_starts(kExec - 100), feed(perfio::SchedSwitchSample{0, 10}, kExec - 50, 0, 0);
       }},
      {true,
       [&] {
         trace_starts(kExec - 100), feed(perfio::AuxRecord{0, 64, 0}, kExec - 50, 10, 10);
       }},
      {false,
       [&] {
         trace_starts(kExec - 100), feed(perfio::AuxRecord{0, 64, 0}, kExec - 50, 11, 11);
       }},
      {true, [&] { fork(9, 10, 10, 1000); }},
      {false, [&] { map(9, 0x400000, "/bin/one", 500), fork(9, 10, 10, 1000); }},
      {false, [&] { trace_starts(1000), map(10, 0x400000, "/bin/one", 2000); }},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    start();
    rows[i].second();
    comm(10, 10, "two", true, kExec);
    map(10, 0x400000, "/bin/two", kExec + 1);
    finish();
    const Context before = data_->contexts.at_thread(10, TimeNs{kExec - 1});
    EXPECT_EQ(before.tid, 10) << i;
    EXPECT_EQ(before.space == kNoSpace, rows[i].first) << i;
    EXPECT_NE(data_->contexts.at_thread(10, TimeNs{kExec}).space, kNoSpace) << i;
  }
}

// Another thread of the process calls exec.
TEST_F(Fold, AnUnnamedThreadThatIsNotTheFirstRanAnotherProgramBefore) {
  feed(perfio::ItraceStartRecord{10, 11}, 1000, 10, 11, 3);
  feed(perfio::CommRecord{10, 10, "two", true}, 1100, 10, 10, 3);
  finish();
  EXPECT_EQ(data_->contexts.at_thread(11, TimeNs{1050}).space, kNoSpace);
}

// The ring of a thread that calls exec: its records name the process from then on, the ring's trace is of one stream.
TEST_F(Fold, TheRingOfAThreadThatCallsExecIsOne) {
  fold_->set_per_cpu(false);
  const std::vector<uint64_t> index{0, 1, 7, 0, ~uint64_t{0}, 11};  // ID_INDEX: one event, of thread 11
  perfio::Record ids;
  ids.type = perfio::kRecordIdIndex;
  ids.raw = std::as_bytes(std::span(index));
  fold_->on_record(ids);
  const auto on_ring = [this](perfio::Payload payload, uint64_t time, int32_t tid) {
    perfio::Record record;
    record.payload = std::move(payload);
    record.sample_id = {10, tid, time, true, 2, 7, 0};
    fold_->on_record(record);
  };
  comm(10, 10, "one", true, 100);
  map(10, 0x400000, "/bin/one", 101);
  fork(10, 10, 11, 200);
  on_ring(perfio::AuxRecord{0, 64, 0}, 1000, 11);
  on_ring(perfio::CommRecord{10, 10, "two", true}, 2000, 10);
  map(10, 0x400000, "/bin/two", 2001);
  on_ring(perfio::AuxRecord{64, 64, 0}, 3000, 10);
  const std::vector<std::byte> trace(128);
  perfio::AuxtraceRecord aux;
  aux.size_bytes = trace.size();
  aux.tid = 11;
  aux.cpu = -1;
  aux.payload = trace;
  feed(aux, 0);
  finish();
  EXPECT_EQ(user_byte(11, 0x400000 + kCode, 1500), 0x55);
  EXPECT_EQ(user_byte(11, 0x400000 + kCode, 2500), 0x90);
  EXPECT_EQ(data_->contexts.at_thread(11, TimeNs{2500}).tid, 10);
  ASSERT_EQ(data_->streams.size(), 1U);
  for (const Finding& finding : data_->timeline.findings()) EXPECT_NE(finding.kind, FindingKind::trace_lost) << finding.what;
}

bool lacks_comm(const Finding& finding) {
  return finding.kind == FindingKind::records_lost && finding.what.find("COMM record") != std::string::npos;
}

// The kernel maps the program, its loader and another vdso.
TEST_F(Fold, ANewVdsoIsAProgramWithoutComm) {
  const auto run = [this](uint64_t vdso, bool named) {
    start();
    comm(10, 10, "one", true, 1000);
    map(10, 0x400000, "/bin/one", 1001);
    map(10, 0x700000, "/lib/ld-linux.so.2", 1002);
    map(10, 0x7ff000, "[vdso]", 1003);
    map(10, 0x710000, "/lib/libc.so.6", 1004);
    if (named) comm(10, 10, "two", true, 2000);
    map(10, 0x400000, "/bin/two", 2001);
    map(10, 0x720000, "/lib/ld-linux.so.2", 2002);
    map(10, vdso, "[vdso]", 2003);
    finish();
    return std::ranges::count_if(data_->timeline.findings(), lacks_comm);
  };
  EXPECT_EQ(run(0x7fe000, false), 1);
  const auto space = [this](uint64_t time) { return data_->contexts.at_thread(10, TimeNs{time}).space; };
  EXPECT_NE(space(2000), space(2001));
  EXPECT_EQ(space(2001), space(2500));
  EXPECT_EQ(user_byte(10, 0x400000 + kCode, 1500), 0x55);
  EXPECT_EQ(user_byte(10, 0x400000 + kCode, 2500), 0x90);
  ASSERT_EQ(data_->comms.at(10).size(), 2U);
  EXPECT_EQ(data_->comms.at(10).back(), (std::pair{TimeNs{2001}, std::string()}));
  EXPECT_EQ(data_->timeline.section_at(space(2500), Ip{0x710000}, TimeNs{2500}), kNoSection);  // of the program before
  // The same vdso, or a COMM record: nothing is missing.
  EXPECT_EQ(run(0x7ff000, false), 0);
  EXPECT_EQ(run(0x7fe000, true), 0);
}

// A child has the vdso of its parent, and a process that comes again has another one.
TEST_F(Fold, AVdsoIsOfOneProcess) {
  map(10, 0x7ff000, "[vdso]", 1000);
  fork(10, 11, 11, 1100);
  map(11, 0x7fe000, "[vdso]", 1200);
  feed(perfio::TaskRecord{10, 1, 10, 1, 1300, true}, 1300, 10, 10);
  map(10, 0x7fd000, "[vdso]", 1400);
  finish();
  const auto& findings = data_->timeline.findings();
  EXPECT_EQ(std::ranges::count_if(findings, lacks_comm), 1);
  EXPECT_TRUE(
      std::ranges::any_of(findings, [](const Finding& finding) { return lacks_comm(finding) && finding.time.first == TimeNs{1200}; }));
}

// The emulator starts the trace of each program.
TEST_F(Fold, TraceThatStartsAgainIsAProgramWithoutComm) {
  const auto run = [this](uint64_t again, bool named) {
    start();
    fold_->set_per_cpu(false);
    comm(10, 10, "one", true, 1000);
    feed(perfio::ItraceStartRecord{10, 10}, 1000, 10, 10, -1);
    map(10, 0x400000, "/bin/one", 1000);
    if (named) comm(10, 10, "two", true, 2000);
    feed(perfio::ItraceStartRecord{10, 10}, again, 10, 10, -1);
    map(10, 0x400000, "/bin/two", 2000);
    finish();
    return std::ranges::count_if(data_->timeline.findings(), lacks_comm);
  };
  EXPECT_EQ(run(2000, false), 1);
  const auto space = [this](uint64_t time) { return data_->contexts.at_thread(10, TimeNs{time}).space; };
  EXPECT_NE(space(1999), space(2000));
  EXPECT_EQ(data_->comms.at(10).back(), (std::pair{TimeNs{2000}, std::string()}));
  EXPECT_EQ(run(2000, true), 0);
  EXPECT_EQ(data_->comms.at(10).back().second, "two");
  EXPECT_EQ(space(1), space(1500)) << "a trace without times begins with the first program";
  EXPECT_EQ(run(1000, false), 0);  // the record is there twice
  EXPECT_EQ(run(1500, false), 0);  // nothing is mapped then
}

// Another thread, or the start of a thread, gives a name outside of the thread's own system calls.
TEST_F(Fold, NamesThatOthersGiveAreNoRenames) {
  comm(10, 10, "first", false, 1000);
  comm(10, 10, "own", false, 1100);
  feed(perfio::CommRecord{10, 10, "given", false}, 1200, 10, 11);
  fork(9, 10, 10, 1300);
  feed(perfio::CommRecord{10, 10, "unknown", false}, 1400);
  comm(9, 9, "parent", false, 1500);
  finish();
  std::vector<uint64_t> times;
  for (const Rename& rename : renames_of(*data_)) times.push_back(rename.time.value);
  EXPECT_EQ(times, (std::vector<uint64_t>{1100, 1400}));
}

}  // namespace
}  // namespace ptd
