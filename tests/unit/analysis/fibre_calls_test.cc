// CallTree: stacks of announced fibres. Each case is given as steps of flow of threads and read as an indented tree for each stack.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "analysis/call_flow.h"
#include "analysis/tree/fibre_stacks.h"
#include "ptdecode/call_tree.h"
#include "tests/support/peak_memory.h"

namespace ptd::fibre_calls {
namespace {

constexpr FunctionId kMain = 0, kSwitch = 1, kF = 2, kG = 3;
constexpr const char* kNames[] = {"main", "switch", "f", "g"};
constexpr int32_t kOne = 11, kTwo = 12;  // threads

/// Feeds steps 10 ns apart, of 5 instructions each. A stack is written as its name, then "f(" where a call begins and ")" where it ends.
class Story {
 public:
  void add(int32_t tid, FlowStep step) {
    step.pid = step.pid < 0 ? 10 : step.pid;
    step.tid = tid;
    step.space = step.space == kNoSpace ? SpaceId{1} : step.space;
    step.time = step.floor = TimeNs{now_ += 10};
    step.instructions = 5;
    std::vector<CallStep> out;
    tree_.take(step, out);
    tell(out);
  }
  void begin(int32_t tid, FunctionId function = kMain, uint8_t flags = kFlowEntry | kFlowNamed) {
    add(tid, {.kind = FlowKind::begin, .flags = flags, .function = function, .to = Ip{0x1000}});
  }
  void call(int32_t tid, FunctionId function, uint64_t return_to) {
    add(tid,
        {.kind = FlowKind::call, .flags = kFlowEntry | kFlowNamed, .function = function, .to = Ip{0x2000}, .return_to = Ip{return_to}});
  }
  void ret(int32_t tid, uint64_t to, FunctionId into = kMain, uint8_t flags = kFlowNamed) {
    add(tid, {.kind = FlowKind::ret, .flags = flags, .function = into, .from = kSwitch, .to = Ip{to}});
  }
  /// `late`: how long after the time of the step the thread may have announced it.
  void fibre(int32_t tid, uint64_t number, uint64_t late = 0) {
    add(tid, {.kind = FlowKind::fibre, .from = kSwitch, .to = Ip{number}, .return_to = Ip{now_ + 10 + late}});
  }
  void gap(int32_t tid) { add(tid, {.kind = FlowKind::gap, .gap = GapReason::overflow}); }
  void kernel_switch(int32_t tid, bool in) { add(tid, {.kind = in ? FlowKind::switch_in : FlowKind::switch_out}); }
  /// Calls the function that switches stacks, and announces a fibre in it.
  void switch_to(int32_t tid, uint64_t number, uint64_t return_to, uint64_t late = 0) {
    call(tid, kSwitch, return_to);
    fibre(tid, number, late);
  }
  void finish() {
    std::vector<CallStep> out;
    tree_.finish(out);
    tell(out);
  }
  [[nodiscard]] std::string text(uint64_t fibre, int32_t tid = kOne) const {
    for (uint32_t i = 0; i < tree_.threads().size(); ++i) {
      const CallThread& thread = tree_.threads()[i];
      if (thread.fibre == fibre && (thread.tid == tid || (fibre != 0 && fibre != kUnknownFibre)))
        return texts_.contains(i) ? texts_.at(i) : "";
    }
    return "none";
  }
  [[nodiscard]] const CallThread& thread(uint64_t fibre) const {
    for (const CallThread& thread : tree_.threads()) {
      if (thread.fibre == fibre) return thread;
    }
    return tree_.threads().front();
  }
  [[nodiscard]] const CallTree& tree() const { return tree_; }
  [[nodiscard]] const std::vector<CallStep>& left() const { return left_; }
  void restart() {
    std::vector<CallStep> out;
    texts_.clear();
    tree_.restart(TimeNs{now_ + 5}, out);
    tell(out);
  }

 private:
  void tell(const std::vector<CallStep>& out) {
    for (const CallStep& step : out) {
      std::string& text = texts_[step.thread];
      if (step.kind == CallStepKind::enter) {
        text += std::string((step.flags & kCallNoStart) != 0 ? "?" : "") + kNames[step.function] + "(";
      } else if (step.kind == CallStepKind::leave) {
        text += (step.flags & kCallCut) != 0 ? ")x " : ") ";
        left_.push_back(step);
      } else {
        text += step.kind == CallStepKind::off ? "off " : step.kind == CallStepKind::on ? "on " : "LOST ";
      }
    }
  }
  CallTree tree_{nullptr};
  uint64_t now_ = 1000;
  std::map<uint32_t, std::string> texts_;
  std::vector<CallStep> left_;
};

TEST(FibreCalls, EachFibreHasAStackOfItsOwn) {
  Story story;
  story.begin(kOne);
  story.switch_to(kOne, 1, 0x1010);
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);  // the new stack begins with f
  story.call(kOne, kG, 0x5010);
  story.switch_to(kOne, 0, 0x6010);
  story.ret(kOne, 0x1010);  // as the call of 0x1010 awaits
  story.call(kOne, kF, 0x1020);
  story.switch_to(kOne, 1, 0x2010);
  story.ret(kOne, 0x6010, kG);
  story.ret(kOne, 0x5010, kF);
  story.switch_to(kOne, 0, 0x5020);
  story.ret(kOne, 0x2010, kF);
  story.ret(kOne, 0x1020);
  story.finish();
  EXPECT_EQ(story.text(0), "main(switch(off on ) f(switch(off on ) ) )x ");
  EXPECT_EQ(story.text(1), "?switch() f(g(switch(off on ) ) switch(off )x )x ");
  EXPECT_EQ(story.tree().threads().size(), 2U);
}

TEST(FibreCalls, TimeOfAStackThatDoesNotRunIsOffCpu) {
  Story story;
  story.begin(kOne);                 // at 1010
  story.switch_to(kOne, 1, 0x1010);  // call at 1020, announcement at 1030
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
  story.switch_to(kOne, 0, 0x5010);  // at 1060
  story.ret(kOne, 0x1010);           // at 1070
  story.finish();
  const CallStep* main_call = nullptr;
  for (const CallStep& step : story.left()) {
    if (step.function == kMain) main_call = &step;
  }
  ASSERT_NE(main_call, nullptr);
  EXPECT_EQ(main_call->total_ns(), 60U);
  EXPECT_EQ(main_call->off_cpu_ns, 30U);
  EXPECT_EQ(main_call->self_ns, 10U);
  const CallThread &own = story.tree().threads()[0], &fibre = story.tree().threads()[1];
  EXPECT_EQ(own.running_ns + own.off_cpu_ns, 60U);
  EXPECT_EQ(fibre.running_ns, 30U);
  EXPECT_EQ(own.instructions + fibre.instructions, 7U * 5U);  // each once
}

TEST(FibreCalls, AFibreMovesToAnotherThread) {
  Story story;
  story.begin(kOne);
  story.begin(kTwo);
  story.switch_to(kOne, 1, 0x1010);
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
  story.switch_to(kOne, 0, 0x5010);
  story.switch_to(kTwo, 1, 0x1010);
  story.ret(kTwo, 0x5010, kF);
  story.call(kTwo, kG, 0x5020);
  story.ret(kOne, 0x1010);
  story.ret(kTwo, 0x5020, kF);
  story.switch_to(kTwo, 0, 0x5030);
  story.ret(kTwo, 0x1010);
  story.finish();
  EXPECT_EQ(story.text(1), "?switch() f(switch(off on ) g() switch(off )x )x ");
  EXPECT_EQ(story.text(0, kOne), "main(switch(off on ) )x ");
  EXPECT_EQ(story.text(0, kTwo), "main(switch(off on ) )x ");
  EXPECT_EQ(story.thread(1).tid, kOne);
}

TEST(FibreCalls, NumbersBelongToAProcess) {
  Story story;
  story.begin(kOne);
  story.switch_to(kOne, 1, 0x1010);
  story.add(
      21, {.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .pid = 20, .space = SpaceId{2}, .function = kMain, .to = Ip{0x1000}});
  story.add(21, {.kind = FlowKind::fibre, .pid = 20, .space = SpaceId{2}, .from = kSwitch, .to = Ip{1}});
  EXPECT_EQ(story.tree().threads().size(), 4U);
}

TEST(FibreCalls, KernelSwitchesConcernTheFibreThatRuns) {
  Story story;
  story.begin(kOne);
  story.switch_to(kOne, 1, 0x1010);
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
  story.kernel_switch(kOne, false);
  story.kernel_switch(kOne, true);
  story.call(kOne, kG, 0x5010);
  story.ret(kOne, 0x5010, kF);
  story.finish();
  EXPECT_EQ(story.text(0), "main(switch(off )x )x ");
  EXPECT_EQ(story.text(1), "?switch() f(off on g() )x ");
}

TEST(FibreCalls, AnAnnouncementOfTheFibreThatRunsChangesNothing) {
  Story story;
  story.begin(kOne);
  story.switch_to(kOne, 0, 0x1010);
  story.ret(kOne, 0x1010);
  story.finish();
  EXPECT_EQ(story.text(0), "main(switch() )x ");
}

// Which fibre runs after a loss is not known up to the next announcement, and neither is whether those that did not run have run in it.
TEST(FibreCalls, AfterALossAnUnknownFibreRuns) {
  Story story;
  story.begin(kOne);
  story.switch_to(kOne, 1, 0x1010);
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
  story.switch_to(kOne, 2, 0x5010);
  story.ret(kOne, 0x5100, kG, kFlowEntry | kFlowNamed);
  story.gap(kOne);
  story.begin(kOne, kF, kFlowNamed);
  story.call(kOne, kG, 0x5018);
  story.switch_to(kOne, 1, 0x6010);  // 2 may have run, or 1, or the thread's own stack
  story.ret(kOne, 0x5010, kF);
  story.call(kOne, kG, 0x5020);
  story.switch_to(kOne, 0, 0x6020);
  story.ret(kOne, 0x1010);
  story.finish();
  EXPECT_EQ(story.text(2), "?switch() g()x LOST off ");
  EXPECT_EQ(story.text(kUnknownFibre), "off on ?f(g(switch()x )x )x off ");
  EXPECT_EQ(story.text(1), "?switch() f(switch(off on )x )x LOST ?switch() ?f(g(switch(off )x )x )x ");
  EXPECT_EQ(story.text(0), "main(switch(off on )x )x LOST ?switch() ?main()x ");
}

TEST(FibreCalls, ALossOfAnotherThreadLeavesTheOwnStackAndTheRunningFibre) {
  Story story;
  story.begin(kOne);
  story.begin(kTwo);
  story.switch_to(kOne, 1, 0x1010);
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
  story.switch_to(kTwo, 2, 0x1010);
  story.ret(kTwo, 0x5100, kG, kFlowEntry | kFlowNamed);
  story.gap(kTwo);
  story.call(kOne, kG, 0x5020);
  story.ret(kOne, 0x5020, kF);
  story.switch_to(kOne, 0, 0x5030);
  story.ret(kOne, 0x1010);
  story.switch_to(kOne, 1, 0x1020);  // it may have run on the other thread since it stopped
  story.ret(kOne, 0x5030, kF);
  story.finish();
  EXPECT_EQ(story.text(0, kOne), "main(switch(off on ) switch(off )x )x ");
  EXPECT_EQ(story.text(1), "?switch() f(g() switch(off on )x )x LOST ?switch() ?f()x ");
}

// While flow of a thread is lost, and up to its next announcement, it may run a fibre that has stopped on another thread meanwhile.
TEST(FibreCalls, AFibreThatStopsDuringALossMayHaveRunInIt) {
  for (const bool announces : {false, true}) {
    Story story;
    story.begin(kOne);
    story.begin(kTwo);
    story.switch_to(kTwo, 2, 0x1010);
    story.ret(kTwo, 0x5100, kG, kFlowEntry | kFlowNamed);
    story.switch_to(kOne, 1, 0x1010);
    story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
    story.gap(kOne);
    story.switch_to(kTwo, 0, 0x5110);
    story.ret(kTwo, 0x1010);
    story.begin(kOne, kG, kFlowNamed);
    if (announces) story.switch_to(kOne, 0, 0x7010);
    story.switch_to(kTwo, 2, 0x1020);
    story.finish();
    EXPECT_EQ(story.text(2), "?switch() g(switch(off on )x )x LOST ");
    EXPECT_EQ(story.text(0, kTwo), "main(switch(off on ) switch(off )x )x ");
  }
}

// The recording begins after the program: it may begin while a fibre runs.
TEST(FibreCalls, CallsBeforeTheFirstAnnouncementMayBeThoseOfAFibre) {
  Story story;
  story.begin(kOne, kG, kFlowNamed);
  story.switch_to(kOne, 1, 0x6010);
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
  story.switch_to(kOne, 0, 0x5010);
  story.ret(kOne, 0x1010);
  story.finish();
  EXPECT_EQ(story.text(0), "?g(switch()x )x off on ?switch() ?main()x ");
}

TEST(FibreCalls, AThreadThatHasAnnouncedNothingKeepsItsStackAfterALoss) {
  Story story;
  story.begin(kOne);
  story.gap(kOne);
  story.begin(kOne, kMain, kFlowNamed);
  EXPECT_EQ(story.text(0), "main()x LOST off on ?main(");
  story.switch_to(kOne, 1, 0x1010);  // an announcement may have been lost
  story.finish();
  EXPECT_EQ(story.text(0), "main()x LOST off on ?main(switch()x )x off ");
}

TEST(FibreCalls, AFibreThatAnotherThreadClaimsIsGivenUp) {
  Story story;
  story.begin(kOne);
  story.begin(kTwo);
  story.switch_to(kOne, 1, 0x1010);
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
  story.switch_to(kTwo, 1, 0x1010);  // kOne has not announced that it runs something else
  story.ret(kTwo, 0x5010, kF);
  story.call(kOne, kG, 0x5020);
  story.switch_to(kOne, 0, 0x6010);
  story.ret(kOne, 0x1010);
  story.finish();
  EXPECT_EQ(story.text(1), "?switch() f()x LOST off on ?switch() ?f()x ");
  EXPECT_EQ(story.text(kUnknownFibre), "g(switch()x )x off ");
  EXPECT_EQ(story.text(0, kOne), "main(switch(off on ) )x ");
}

TEST(FibreCalls, AMoveWhoseOrderIsNotKnownGivesUpTheFibre) {
  for (const uint64_t late : {10U, 20U, 21U}) {
    Story story;
    story.begin(kOne);
    story.begin(kTwo);
    story.switch_to(kOne, 1, 0x1010);
    story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
    story.switch_to(kOne, 0, 0x5010, late);  // 20 ns before the next announcement
    story.switch_to(kTwo, 1, 0x1010);
    story.ret(kTwo, 0x5010, kF);
    story.finish();
    EXPECT_EQ(story.text(1), late <= 20 ? "?switch() f(switch(off on ) )x " : "?switch() f(switch(off on )x )x LOST ?switch() ?f()x ")
        << late;
  }
}

TEST(FibreCalls, AnotherProgramHasNoFibres) {
  Story story;
  story.begin(kOne);
  story.switch_to(kOne, 1, 0x1010);
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
  story.add(kOne, {.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .space = SpaceId{2}, .function = kMain, .to = Ip{0x1000}});
  story.add(kOne, {.kind = FlowKind::fibre, .space = SpaceId{2}, .from = kSwitch, .to = Ip{1}});
  story.finish();
  EXPECT_EQ(story.text(1), "?switch() f()x LOST off ");
  EXPECT_EQ(story.text(0), "main(switch(off on )x )x LOST main(off )x ");
  EXPECT_EQ(story.tree().threads().size(), 3U);  // the number is that of a new fibre
}

TEST(FibreCalls, ARestartKeepsWhatIsOpen) {
  Story story;
  story.begin(kOne);
  story.switch_to(kOne, 1, 0x1010);
  story.ret(kOne, 0x5000, kF, kFlowEntry | kFlowNamed);
  story.restart();
  EXPECT_EQ(story.thread(1).fibre, 1U);
  story.switch_to(kOne, 0, 0x5010);
  story.ret(kOne, 0x1010);
  story.finish();
  EXPECT_EQ(story.text(0), "?main(?switch(on ) )x ");
  EXPECT_EQ(story.text(1), "?f(switch(off )x )x ");
}

// Each stack takes memory: a trace with more fibres has no stacks for the last ones.
TEST(FibreCalls, TheNumberOfStacksIsLimited) {
  Story story;
  story.begin(kOne);
  for (uint64_t fibre = 1; fibre <= FibreStacks::kMostFibres + 10; ++fibre) story.switch_to(kOne, fibre, 0x1010);
  EXPECT_EQ(story.tree().threads().size(), FibreStacks::kMostFibres + 2);
  EXPECT_EQ(story.tree().threads().back().fibre, kUnknownFibre);
  story.switch_to(kOne, 1, 0x1010);
  story.finish();
  EXPECT_EQ(story.tree().threads().size(), FibreStacks::kMostFibres + 2);
}

TEST(FibreCalls, OperandsOfPtwrite) {
  EXPECT_TRUE(is_fibre(0xf1be000000000000));
  EXPECT_TRUE(is_fibre(0xf1beffffffffffff));
  EXPECT_FALSE(is_fibre(0xf1bf000000000000));
  EXPECT_FALSE(is_fibre(0x7));
  EXPECT_EQ(fibre_of(0xf1be000012345678), 0x12345678U);
}

// What counts the open calls of a stack is made when the stack runs, so that a suspended fibre takes little memory: 60 KB each before.
TEST(FibreCalls, ManyFibresTakeLittleMemoryAndKeepTheirOpenCalls) {
  constexpr uint64_t kFibres = 5000, kFunctions = 100;
  CallTree tree(nullptr);
  std::vector<CallStep> out;
  uint64_t now = 0, inner = 0;
  const auto add = [&](FlowStep step) {
    step.pid = 10;
    step.tid = kOne;
    step.space = SpaceId{1};
    step.time = step.floor = TimeNs{now += 10};
    step.instructions = 5;
    out.clear();
    tree.take(step, out);
    for (const CallStep& each : out)
      inner += each.kind == CallStepKind::enter && each.function == kF && (each.flags & kCallInner) != 0 ? 1 : 0;
  };
  const auto call = [&](FunctionId function) {
    add({.kind = FlowKind::call, .flags = kFlowEntry | kFlowNamed, .function = function, .to = Ip{0x2000}, .return_to = Ip{0x3000}});
  };
  const auto fibre = [&](uint64_t number) { add({.kind = FlowKind::fibre, .from = kSwitch, .to = Ip{number}, .return_to = Ip{now + 10}}); };
  add({.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .function = kMain, .to = Ip{0x1000}});
  test::reset_peak();
  const long before = test::status_mib("VmHWM");
  for (uint64_t number = 1; number <= kFibres; ++number) {
    fibre(number);
    call(kF);
    for (FunctionId function = 0; function < kFunctions; ++function) {
      call(1000 + function * 64);
      add({.kind = FlowKind::ret, .flags = kFlowNamed, .function = kF, .to = Ip{0x3000}});
    }
  }
  EXPECT_LT(test::status_mib("VmHWM") - before, 100);
  EXPECT_EQ(inner, 0U);
  for (uint64_t number = 1; number <= kFibres; ++number) {
    fibre(number);
    call(kF);  // from kF, which is open in each fibre
  }
  EXPECT_EQ(inner, kFibres);
}

}  // namespace
}  // namespace ptd::fibre_calls
