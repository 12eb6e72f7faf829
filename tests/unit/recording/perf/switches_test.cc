// Sideband fold: chains of cpu-wide context switches.
#include <utility>
#include <vector>

#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

perfio::SwitchRecord wide_switch(bool out, int32_t other, int32_t other_tid = -1) {
  perfio::SwitchRecord record;
  record.cpu_wide = true;
  record.out = out;
  record.next_prev_pid = other;
  record.next_prev_tid = other_tid == -1 ? other : other_tid;
  return record;
}

TEST_F(Fold, AMissingPairOfSwitchesIsALoss) {
  feed(wide_switch(true, 20), 1000, 10, 10, 3);
  feed(wide_switch(false, 10), 1010, 20, 20, 3);
  feed(wide_switch(true, 10), 5000, 30, 30, 3);  // OUT of 20 and IN of 30 are missing
  feed(wide_switch(false, 30), 5010, 10, 10, 3);
  feed(wide_switch(false, 7), 6000, 8, 8, 4);  // of another cpu
  finish();
  ASSERT_EQ(data_->timeline.findings().size(), 1U);
  const Finding& finding = data_->timeline.findings()[0];
  EXPECT_EQ(finding.kind, FindingKind::records_lost);
  EXPECT_EQ(finding.time.first.value, 1010U);
  EXPECT_EQ(finding.time.last.value, 5000U);
}

// A task that exits has no number any more, one that calls exec takes its leader's, and two events on a cpu both report a switch.
TEST_F(Fold, ACompleteChainOfSwitchesIsNone) {
  feed(wide_switch(true, 20, 21), 1000, 10, 10, 3);
  feed(wide_switch(true, 20, 21), 1001, 10, 10, 3);
  feed(wide_switch(false, 10), 1010, 20, 21, 3);
  feed(wide_switch(false, 10), 1011, 20, 21, 3);
  feed(wide_switch(true, 0), 2000, 20, 20, 3);
  feed(wide_switch(false, 20), 2010, 0, 0, 3);
  feed(wide_switch(true, 40), 3000, 0, 0, 3);
  feed(wide_switch(false, 0), 3010, 40, 40, 3);
  feed(wide_switch(true, 10), 4000, -1, -1, 3);
  feed(wide_switch(false, -1), 4010, 10, 10, 3);
  feed(wide_switch(true, 50), 5000, 10, 10, 3);
  feed(wide_switch(false, 50), 5010, 60, 60, 3);  // nothing of 50 itself
  finish();
  EXPECT_TRUE(data_->timeline.findings().empty());
}

// OUT names the next thread and IN the thread before, and both are there twice. A thread has the number that it came with when it leaves,
// or that of its process if it called exec.
TEST_F(Fold, SwitchesThatContradictEachOthersThreadAreAFinding) {
  struct Record {
    bool out;
    int32_t pid, tid, other, other_tid;
  };
  const std::vector<Record> right = {{true, 10, 11, 20, 22}, {false, 20, 22, 10, 11}, {true, 20, 22, 10, 12}, {false, 10, 12, 20, 22},
                                     {true, 10, 10, 0, 0},   {false, 0, 0, 10, 10},   {true, 0, 0, 30, 33},   {false, 30, 33, 0, 0},
                                     {true, 30, 33, 20, 22}, {false, 20, 22, 30, 33}};
  const auto findings_of = [&](const std::vector<Record>& records) {
    start();
    uint64_t time = 1000;
    for (const Record& record : records)
      feed(wide_switch(record.out, record.other, record.other_tid), time += 10, record.pid, record.tid, 3);
    finish();
    return data_->timeline.findings();
  };
  EXPECT_TRUE(findings_of(right).empty());
  constexpr int32_t kBit = 1 << 16;
  for (size_t i = 0; i < right.size(); ++i) {
    for (const bool own : {true, false}) {
      std::vector<Record> wrong = right;
      (own ? wrong[i].tid : wrong[i].other_tid) ^= kBit;
      const auto findings = findings_of(wrong);
      EXPECT_FALSE(findings.empty()) << i << own;
      for (const Finding& finding : findings) EXPECT_EQ(finding.kind, FindingKind::bad_record) << finding.what;
      for (const ContextTrack::Switch& known : data_->contexts.switches(3)) EXPECT_EQ(known.to.pid == 0, known.to.tid == 0) << i << own;
    }
  }
}

// The idle task comes, and IN is of another one that left nothing else behind, or the other way round.
TEST_F(Fold, AnInOfAnotherTaskThanItsOutNamesIsALoss) {
  for (const auto& [named, came] : std::vector<std::pair<int32_t, int32_t>>{{0, 88}, {30, 0}, {30, 88}}) {
    start();
    feed(wide_switch(true, named), 1000, 10, 10, 3);
    feed(wide_switch(false, 10), 1010, came, came, 3);
    finish();
    ASSERT_EQ(data_->timeline.findings().size(), 1U) << named << " " << came;
    EXPECT_EQ(data_->timeline.findings()[0].kind, FindingKind::records_lost);
    EXPECT_EQ(data_->timeline.findings()[0].time.first.value, 1000U);
  }
}

// What an IN of an impossible task says, the OUT before it says too.
TEST_F(Fold, AnInOfAnImpossibleTaskIsNotUsed) {
  struct Own {
    int32_t pid, tid;
  };
  for (const Own own : {Own{0, 77777}, {88, 0}, {-5, 88}}) {
    start();
    feed(wide_switch(true, 0), 1000, 10, 10, 3);
    feed(wide_switch(false, 10), 1010, own.pid, own.tid, 3);
    feed(wide_switch(true, 10), 2000, 0, 0, 3);
    feed(wide_switch(false, 0), 2010, 10, 10, 3);
    finish();
    ASSERT_EQ(data_->timeline.findings().size(), 1U);
    EXPECT_EQ(data_->timeline.findings()[0].kind, FindingKind::bad_record);
    EXPECT_EQ(data_->contexts.at_cpu(3, TimeNs{1500}).tid, 0);
    EXPECT_EQ(data_->contexts.at_cpu(3, TimeNs{2500}).tid, 10);
  }
}

// Before Linux 4.15, an exiting thread has no number when it leaves ([Linux] 1d953111b648).
TEST_F(Fold, AThreadWithoutANumberMayLeave) {
  start();
  feed(wide_switch(true, 0), 1000, 10, 12, 3);
  feed(wide_switch(false, 10, 12), 1010, 0, 0, 3);
  feed(wide_switch(true, 10, 12), 2000, 0, 0, 3);
  feed(wide_switch(false, 0), 2010, 10, 12, 3);
  feed(wide_switch(true, 20), 3000, 10, 0, 3);
  feed(wide_switch(false, 10, 0), 3010, 20, 20, 3);
  finish();
  EXPECT_EQ(data_->timeline.findings().size(), 0U);
  EXPECT_EQ(data_->contexts.at_cpu(3, TimeNs{2500}).tid, 12);
  EXPECT_EQ(data_->contexts.at_cpu(3, TimeNs{3500}).tid, 20);
}

struct Step {
  bool out = false;
  int32_t own = 0, other = 0;
  uint64_t time = 0, event = 0;
};

class SwitchChain : public Fold {
 protected:
  void run(const std::vector<Step>& steps) {
    start();
    for (const Step& step : steps) {
      perfio::Record record;
      record.payload = wide_switch(step.out, step.other);
      record.sample_id.pid = record.sample_id.tid = step.own;
      record.sample_id.cpu = 3;
      record.sample_id.id = step.event;
      record.sample_id.time = step.time;
      record.sample_id.has_time = true;
      fold_->on_record(record);
    }
    finish();
  }
  // Returns whether a finding's time includes `time`.
  [[nodiscard]] bool doubts(uint64_t time) const {
    for (const Finding& finding : data_->timeline.findings()) {
      if (finding.kind == FindingKind::records_lost && finding.time.first.value <= time && time <= finding.time.last.value) return true;
    }
    return false;
  }
};

// Two tasks that alternate, one with the idle task, and one beside another, as one and as two events report them.
std::vector<Step> steps_of(const std::vector<int32_t>& tasks, uint64_t events) {
  std::vector<Step> steps;
  uint64_t time = 1000;
  for (size_t i = 0; i + 1 < tasks.size(); ++i) {
    time += 1000;
    for (uint64_t event = 1; event <= events; ++event) steps.push_back({true, tasks[i], tasks[i + 1], time++, event});
    for (uint64_t event = 1; event <= events; ++event) steps.push_back({false, tasks[i + 1], tasks[i], time++, event});
  }
  return steps;
}

TEST_F(SwitchChain, ASwitchOfTheWrongDirectionIsALoss) {
  for (const std::vector<int32_t>& tasks :
       {std::vector<int32_t>{10, 20, 10, 20, 10}, {10, 0, 10, 0, 10}, {10, 20, 30, 0, 10}, {10, -1, 0, 30, 30}}) {
    for (const uint64_t events : {1U, 2U}) {
      const std::vector<Step> right = steps_of(tasks, events);
      run(right);
      EXPECT_TRUE(data_->timeline.findings().empty());
      for (size_t i = 0; i < right.size(); ++i) {
        std::vector<Step> wrong = right;
        wrong[i].out = !wrong[i].out;
        run(wrong);
        EXPECT_FALSE(data_->timeline.findings().empty()) << i;
        const bool is_last = i + events >= right.size();
        EXPECT_TRUE(is_last || doubts(right[i + events].time - 1)) << "what the record says holds up to the next one: " << i;
      }
    }
  }
}

// Without the number of the event, a second record may be that of another event, but only of the same switch.
TEST_F(SwitchChain, ATaskThatRunsDoesNotComeFromAnother) {
  run({{false, 10, 20, 1000}, {false, 10, 20, 1001}, {true, 10, 20, 2000}});
  EXPECT_TRUE(data_->timeline.findings().empty());
  run({{false, 10, 20, 1000}, {false, 10, 30, 1500}, {false, 30, 10, 1510}});
  EXPECT_TRUE(doubts(1200));
}

}  // namespace
}  // namespace ptd
