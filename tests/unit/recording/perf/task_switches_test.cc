// Sideband fold: switches of events that are attached to tasks, records that contradict the task they name, trace of other times than its
// records.
#include <algorithm>
#include <vector>

#include "ptdecode/pt/packet_writer.h"
#include "recording/bundle/bundle_windows.h"
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

enum class TaskKind : uint8_t { in, out, exit, start, aux, exec, fork };
struct TaskStep {
  TaskKind kind;
  uint64_t time;
  int32_t pid, tid, cpu;
};

// In the order in which Linux writes them: 10 is started by enable_on_exec and starts 11 to 13 and process 20. Thread 12 calls exec and
// becomes 10.
const std::vector<TaskStep> kRight = {
    {TaskKind::start, 1'000'000, 10, 10, 0}, {TaskKind::exec, 1'100'000, 10, 10, 0},  {TaskKind::fork, 2'000'000, 10, 11, 0},
    {TaskKind::in, 3'001'000, 10, 11, 1},    {TaskKind::start, 3'000'000, 10, 11, 1}, {TaskKind::fork, 3'500'000, 10, 12, 0},
    {TaskKind::out, 4'000'000, 10, 10, 0},   {TaskKind::aux, 4'001'000, 10, 10, 0},   {TaskKind::in, 4'002'000, 10, 12, 0},
    {TaskKind::fork, 4'500'000, 10, 13, 0},  {TaskKind::out, 6'000'000, 10, 11, 1},   {TaskKind::aux, 6'001'000, 10, 11, 1},
    {TaskKind::in, 6'002'000, 10, 13, 1},    {TaskKind::fork, 6'500'000, 20, 20, 1},  {TaskKind::out, 8'000'000, 10, 12, 0},
    {TaskKind::aux, 8'001'000, 10, 12, 0},   {TaskKind::in, 8'010'000, 20, 20, 0},    {TaskKind::exit, 9'000'000, 10, 13, 1},
    {TaskKind::aux, 9'001'000, 10, 13, 1},   {TaskKind::in, 9'010'000, 10, 10, 1},    {TaskKind::exit, 11'000'000, 20, 20, 0},
    {TaskKind::aux, 11'001'000, 20, 20, 0},  {TaskKind::in, 11'002'000, 10, 11, 0},   {TaskKind::exit, 12'000'000, 10, 10, 1},
    {TaskKind::aux, 12'001'000, 10, 10, 1},  {TaskKind::in, 12'010'000, 10, 12, 1},   {TaskKind::exit, 13'000'000, 10, 11, 0},
    {TaskKind::aux, 13'001'000, 10, 11, 0},  {TaskKind::exec, 14'000'000, 10, 10, 1}, {TaskKind::out, 15'000'000, 10, 10, 1},
    {TaskKind::aux, 15'001'000, 10, 10, 1},  {TaskKind::in, 15'500'000, 10, 10, 0},   {TaskKind::out, 16'500'000, 10, 10, 0},
    {TaskKind::aux, 16'501'000, 10, 10, 0},  {TaskKind::in, 17'000'000, 10, 10, 1},   {TaskKind::exit, 19'000'000, 10, 10, 1},
    {TaskKind::aux, 19'001'000, 10, 10, 1},
};

class TaskSwitch : public Fold {
 protected:
  void run(std::vector<TaskStep> steps) {
    std::stable_sort(steps.begin(), steps.end(), [](const TaskStep& a, const TaskStep& b) { return a.time < b.time; });
    start();
    fold_->set_attrs(attrs_);
    for (const int32_t cpu : {0, 1}) {
      perfio::AuxtraceRecord trace;
      trace.size_bytes = trace_.size();
      trace.cpu = cpu;
      trace.payload = trace_;
      feed(trace, 0);
    }
    for (const TaskStep& step : steps) {
      const auto put = [&](perfio::Payload payload) { feed(std::move(payload), step.time, step.pid, step.tid, step.cpu); };
      perfio::SwitchRecord change;
      change.out = step.kind == TaskKind::out;
      if (step.kind == TaskKind::in || step.kind == TaskKind::out) put(change);
      if (step.kind == TaskKind::exit) put(perfio::TaskRecord{step.pid, 1, step.tid, 1, step.time, true});
      if (step.kind == TaskKind::start) put(perfio::ItraceStartRecord{step.pid, step.tid});
      if (step.kind == TaskKind::aux) put(perfio::AuxRecord{0, 64, 0});
      if (step.kind == TaskKind::exec) put(perfio::CommRecord{step.pid, step.tid, "p", true});
      if (step.kind == TaskKind::fork) feed(perfio::TaskRecord{step.pid, 10, step.tid, 10, step.time, false}, step.time, 10, 10, step.cpu);
    }
    finish();
  }
  [[nodiscard]] size_t findings() const { return data_->timeline.findings().size(); }

  std::vector<std::byte> trace_ = std::vector<std::byte>(64);
  std::vector<perfio::EventAttr> attrs_ = std::vector<perfio::EventAttr>(1);
};

TEST_F(TaskSwitch, TheOrderOfTheKernelIsRight) {
  run(kRight);
  EXPECT_EQ(findings(), 0U) << data_->timeline.findings()[0].what;
  EXPECT_EQ(data_->contexts.at_cpu(1, TimeNs{7'000'000}).tid, 13);
  EXPECT_EQ(data_->contexts.at_cpu(1, TimeNs{13'900'000}).tid, 12);
  EXPECT_EQ(data_->contexts.at_cpu(1, TimeNs{14'100'000}).tid, 10);
}

// OUT and EXIT are the last that tells of a task before the next one's trace starts.
TEST_F(TaskSwitch, TheKernelTracesATaskFromTheLeaveOfTheOneBeforeOn) {
  std::vector<TimeNs> want;
  for (const TaskStep& step : kRight) {
    if (step.cpu == 1 && (step.kind == TaskKind::out || step.kind == TaskKind::exit)) want.push_back(TimeNs{step.time});
  }
  run(kRight);
  EXPECT_EQ(data_->contexts.leaves(1), want);
  ByteWriter out;
  write_leaves(data_->contexts, out);
  ContextTrack read;
  ASSERT_TRUE(read_leaves(ByteReader(out.bytes()), read));
  EXPECT_EQ(read.leaves(1), want);
  EXPECT_EQ(read.leaves(0), data_->contexts.leaves(0));
}

// Events of cpus report the switches of all tasks. Their trace does not stop where a task leaves, unless it is of a program's tasks.
TEST_F(TaskSwitch, TheTraceOfACpuDoesNotStopAtALeave) {
  for (const uint64_t flags : {0U, 1U << 1, 1U << 12 | 1U << 1}) {
    attrs_[0].flags = flags;
    start();
    fold_->set_attrs(attrs_);
    perfio::SwitchRecord change;
    change.cpu_wide = change.out = true;
    feed(change, 1000, 10, 10, 0);
    feed(perfio::TaskRecord{10, 1, 10, 1, 1100, true}, 1100, 10, 10, 0);
    finish();
    EXPECT_EQ(data_->contexts.leaves(0).size(), flags > 2 ? 2U : 0U) << flags;
  }
}

// The first record of a cpu and what follows the last AUX record give no flow to the wrong thread.
TEST_F(TaskSwitch, AMissingOrWrongSwitchIsAFinding) {
  for (size_t i = 0; i < kRight.size(); ++i) {
    if (kRight[i].kind != TaskKind::in && kRight[i].kind != TaskKind::out) continue;
    std::vector<TaskStep> steps = kRight;
    steps[i].kind = steps[i].kind == TaskKind::in ? TaskKind::out : TaskKind::in;
    run(steps);
    const bool is_start = kRight[i + 1].kind == TaskKind::start;  // says the same
    EXPECT_TRUE(is_start || findings() != 0) << i << " of the other direction";
    const auto cpu_at = [&](TimeNs time) { return data_->contexts.at_cpu(kRight[i].cpu, time).tid; };
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
    run(steps);
    // What ran up to the next record of the cpu: the right thread, or it is a finding.
    EXPECT_TRUE(findings() != 0 || kRight[i].kind == TaskKind::out || cpu_at(TimeNs{kRight[i].time + 500'000}) == kRight[i].tid) << i;
  }
}

// AUX, EXIT and OUT of a thread show that it came, after it was started and after the last one left.
TEST_F(TaskSwitch, TheFlowAfterAMissingComeIsThatOfTheThreadThatLeaves) {
  std::vector<TaskStep> steps = kRight;
  std::erase_if(steps, [](const TaskStep& step) { return step.kind == TaskKind::in && step.tid == 13; });
  run(steps);
  ASSERT_EQ(findings(), 1U);
  const Finding& finding = data_->timeline.findings()[0];
  EXPECT_EQ(finding.kind, FindingKind::records_lost);
  EXPECT_EQ(finding.time.first.value, 6'000'000U);
  EXPECT_EQ(data_->contexts.at_cpu(1, TimeNs{5'900'000}).tid, 11);
  EXPECT_EQ(data_->contexts.at_cpu(1, TimeNs{7'000'000}).tid, 13);
}

TEST_F(TaskSwitch, WithoutSwitchesTheThreadsOfACpuAreAFinding) {
  for (const bool asked : {true, false}) {
    attrs_[0].flags = asked ? 1U << 26 : 0;
    std::vector<TaskStep> steps = kRight;
    std::erase_if(steps, [](const TaskStep& step) { return step.kind == TaskKind::in || step.kind == TaskKind::out; });
    run(steps);
    ASSERT_EQ(findings(), 2U);  // one a cpu
    for (const Finding& finding : data_->timeline.findings()) {
      EXPECT_TRUE(finding.what.starts_with("all context switches of cpu "));
      EXPECT_EQ(finding.what.find("no event records them") == std::string::npos, asked);
    }
    EXPECT_EQ(data_->contexts.at_cpu(0, TimeNs{5'000'000}).tid, -1) << "10 or 12";
    EXPECT_EQ(data_->warnings.size(), 2U);
    std::erase_if(steps, [](const TaskStep& step) { return step.tid != (step.cpu == 1 ? 11 : 10); });
    run(steps);
    EXPECT_EQ(findings(), 0U) << "one thread on each cpu";
  }
}

TEST_F(TaskSwitch, LostRecordsAndOtherEventsExplainIt) {
  std::vector<TaskStep> steps = {{TaskKind::in, 1000, 10, 10, 0}, {TaskKind::in, 2000, 10, 11, 0}};
  run(steps);
  EXPECT_EQ(findings(), 1U);
  start();
  feed(perfio::SwitchRecord{}, 1000, 10, 10, 0);
  feed(perfio::LostRecord{1, 7, false}, 1500, 10, 10, 0);
  feed(perfio::SwitchRecord{}, 2000, 10, 11, 0);
  finish();
  EXPECT_EQ(findings(), 1U);  // the lost records
}

// A new thread is of the process that starts it, and a new process has its thread's number.
TEST_F(Fold, AForkThatContradictsItselfIsNotUsed) {
  fork(10, 1, 12, 1000);
  perfio::TaskRecord wrong_parent{30, 11, 30, 11, 1500, false};
  feed(wrong_parent, 1500, 10, 10);
  feed(perfio::TaskRecord{10, 1, 12, 1, 5000, true}, 5000, 10, 12);
  fork(10, 10, 13, 2000);
  fork(10, 20, 20, 2000);
  finish();
  ASSERT_EQ(data_->timeline.findings().size(), 2U);
  for (const Finding& finding : data_->timeline.findings()) EXPECT_EQ(finding.kind, FindingKind::bad_record);
  EXPECT_EQ(data_->contexts.at_thread(12, TimeNs{2000}).pid, 10);
}

TEST_F(Fold, TheTrailerNamesTheThreadThatStartsOrEnds) {
  feed(perfio::ItraceStartRecord{10, 4711}, 1000, 10, 12, 2);
  feed(perfio::TaskRecord{11, 1, 12, 1, 5000, true}, 5000, 10, 12);
  finish();
  EXPECT_EQ(data_->timeline.findings().size(), 2U);
  EXPECT_EQ(data_->contexts.at_cpu(2, TimeNs{1000}).tid, 12);
}

TEST_F(Fold, ASwitchNamesNoTaskBelowMinusOne) {
  const auto put = [&](bool out, int32_t tid, int32_t other, uint64_t time) {
    feed(perfio::SwitchRecord{out, false, true, 10, other}, time, 10, tid, 3);
  };
  put(true, 11, -1, 1000);
  put(false, 12, 11, 1010);
  put(true, 12, -3985, 2000);
  put(false, 13, 12, 2010);
  put(false, -7, 12, 3000);
  finish();
  ASSERT_EQ(data_->timeline.findings().size(), 2U);
  EXPECT_EQ(data_->contexts.at_cpu(3, TimeNs{2005}).tid, 12);
  EXPECT_EQ(data_->contexts.at_cpu(3, TimeNs{3005}).tid, 13);
}

// Two threads, one after the other. PSBs every 100 us.
class TraceTimes : public Fold {
 protected:
  void run(bool swapped, uint64_t first_psbs) {
    start();
    fold_->set_per_cpu(false);
    data_->decoder.config.time.time_mult = 1;
    std::array<std::vector<std::byte>, 2> traces;
    for (uint64_t i = 0; i < 2; ++i) {
      pt::PacketWriter writer(traces[i]);
      for (uint64_t k = 0; k < first_psbs; ++k) {
        writer.psb();
        writer.tsc(10'000'000 * (i + 1) + k * 100'000);
        writer.psbend();
      }
      const int32_t tid = 10 + static_cast<int32_t>(i);
      feed(perfio::ItraceStartRecord{10, tid}, 10'000'000 * (i + 1) - 1000, 10, tid, -1);
      feed(perfio::AuxRecord{0, traces[i].size(), 0}, 10'000'000 * (i + 1) + 5'000'000, 10, tid, -1);
    }
    for (size_t i = 0; i < 2; ++i) {
      perfio::AuxtraceRecord trace;
      trace.payload = traces[i];
      trace.size_bytes = traces[i].size();
      trace.tid = 10 + static_cast<int32_t>(swapped ? 1 - i : i);
      feed(trace, 0);
    }
    finish();
  }
};

TEST_F(TraceTimes, TraceOfAnotherTimeThanItsRecordsIsAFinding) {
  for (const uint64_t psbs : {1U, 2U, 40U}) {
    run(false, psbs);
    EXPECT_TRUE(data_->timeline.findings().empty());
    run(true, psbs);
    ASSERT_EQ(data_->timeline.findings().size(), 2U);
    EXPECT_TRUE(data_->timeline.findings()[0].what.find("its trace is of other times than its AUX records") != std::string::npos);
  }
}

TEST_F(TaskSwitch, TraceThatNoAuxRecordNamesIsAFinding) {
  trace_.resize(72);  // perf pads to 8 bytes
  run(kRight);
  EXPECT_EQ(findings(), 0U);
  trace_.resize(80);
  run(kRight);
  ASSERT_EQ(findings(), 2U);
  EXPECT_EQ(data_->timeline.findings()[0].what.substr(0, 55), "cpu 0: no AUX record names the last 16 bytes of trace: ");
}

}  // namespace
}  // namespace ptd
