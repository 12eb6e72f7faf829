// CallTree: results for calls and returns that do not match. Each case is given as steps of flow and read as an indented tree.
#include "ptdecode/call_tree.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "analysis/call_flow.h"

namespace ptd {
namespace {

constexpr FunctionId kMain = 0, kF = 1, kG = 2, kThunk = 3, kHandler = 4;
constexpr const char* kNames[] = {"main", "f", "g", "thunk", "handler"};

/// Feeds steps 10 ns apart and writes the tree: "f(" where a call begins, ")" with a letter where it ends, and special steps in between.
class Story {
 public:
  Story() : tree_(nullptr) { add({.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .function = kMain, .to = Ip{0x1000}}); }

  void add(FlowStep step) {
    step.tid = step.tid < 0 ? 7 : step.tid;
    step.time = step.floor = TimeNs{now_ += 10};
    step.instructions = 5;
    std::vector<CallStep> out;
    tree_.take(step, out);
    tell(out);
  }
  void call(FunctionId function, uint64_t return_to) {
    add({.kind = FlowKind::call, .flags = kFlowEntry | kFlowNamed, .function = function, .to = Ip{0x2000}, .return_to = Ip{return_to}});
  }
  void ret(uint64_t to, FunctionId into = kMain, uint8_t flags = kFlowNamed) {
    add({.kind = FlowKind::ret, .flags = flags, .function = into, .to = Ip{to}});
  }
  void jump(FunctionId function, FunctionId from, uint8_t flags = kFlowEntry | kFlowNamed) {
    add({.kind = FlowKind::jump, .flags = flags, .function = function, .from = from, .to = Ip{0x3000}});
  }
  void interrupt(uint64_t at, uint8_t flags = 0) {
    add({.kind = FlowKind::interrupt,
         .flags = static_cast<uint8_t>(flags | kFlowEntry | kFlowNamed),
         .function = kHandler,
         .to = Ip{0x9000},
         .return_to = Ip{at}});
  }
  void far_return(uint64_t to, FunctionId into, uint8_t flags = kFlowNamed) {
    add({.kind = FlowKind::far_return, .flags = flags, .function = into, .to = Ip{to}});
  }
  std::string end() {
    std::vector<CallStep> out;
    tree_.finish(out);
    tell(out);
    return text_;
  }
  [[nodiscard]] const CallTree& tree() const { return tree_; }
  [[nodiscard]] const std::vector<CallStep>& left() const { return left_; }

 private:
  void tell(const std::vector<CallStep>& out) {
    for (const CallStep& step : out) {
      switch (step.kind) {
        case CallStepKind::enter:
          if ((step.flags & kCallNoStart) != 0) text_ += "?";
          if ((step.flags & kCallMiddle) != 0) text_ += "~";
          if (step.frame == FrameKind::tail) text_ += "=";
          if (step.frame == FrameKind::interrupt) text_ += "!";
          text_ += std::string(step.function == kNoFunction ? "-" : kNames[step.function]) + "(";
          break;
        case CallStepKind::leave:
          text_ += (step.flags & kCallCut) != 0 ? ")x " : ") ";
          left_.push_back(step);
          break;
        case CallStepKind::off:
          text_ += "off ";
          break;
        case CallStepKind::on:
          text_ += "on ";
          break;
        case CallStepKind::lost:
          text_ += "LOST ";
          break;
      }
    }
  }
  CallTree tree_;
  uint64_t now_ = 1000;
  std::string text_;
  std::vector<CallStep> left_;
};

TEST(CallTree, CallsNestAndTimeIsGivenOnce) {
  Story story;
  story.call(kF, 0x1010);
  story.call(kG, 0x2010);
  story.ret(0x2010, kF);
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(f(g() ) )x ");
  ASSERT_EQ(story.left().size(), 3U);
  EXPECT_EQ(story.left()[0].total_ns(), 10U);
  EXPECT_EQ(story.left()[1].total_ns(), 30U);
  EXPECT_EQ(story.left()[1].self_ns, 20U);
  EXPECT_EQ(story.left()[1].instructions, 15U);
  EXPECT_EQ(story.left()[1].self_instructions, 10U);
  EXPECT_EQ(story.left()[2].self_ns, 10U);
}

TEST(CallTree, ATailCallTakesTheCallersPlace) {
  Story story;
  story.call(kF, 0x1010);
  story.jump(kG, kF);
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(f() =g() )x ");
}

TEST(CallTree, ARetpolineIsAJump) {
  Story story;
  story.call(kThunk, 0x1010);
  story.call(kThunk, 0x2008);  // call 1f, whose return address the thunk overwrites
  story.ret(0x3000, kG, kFlowEntry | kFlowNamed);
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(thunk(thunk() ) =g() )x ");
}

TEST(CallTree, LongjmpEndsWhatIsFurtherIn) {
  Story story;
  story.call(kF, 0x1010);
  story.call(kG, 0x2010);
  story.jump(kMain, kG, kFlowNamed);
  story.call(kG, 0x1020);
  EXPECT_EQ(story.end(), "main(f(g() ) g()x )x ");
}

TEST(CallTree, AReturnFromTheFirstFunctionLeavesAnotherRoot) {
  Story story;
  story.ret(0x5000, kF);
  story.ret(0x6000, kG);
  EXPECT_EQ(story.end(), "main() ?f() ?g()x ");
}

TEST(CallTree, AnInterruptEndsWhereItStruck) {
  Story story;
  story.call(kF, 0x1010);
  story.interrupt(0x2004);
  story.call(kG, 0x9010);
  story.far_return(0x2004, kF);  // g does not return
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(f(!handler(g() ) ) )x ");
}

TEST(CallTree, AnInt3ThatStandsForACallIsACall) {
  Story story;
  story.interrupt(0x1004, kFlowBreakpoint);
  story.far_return(0x2000, kF, kFlowEntry | kFlowNamed);
  story.ret(0x1009);
  story.call(kG, 0x1020);
  EXPECT_EQ(story.end(), "main(!handler() f() g()x )x ");
}

TEST(CallTree, AnInt3StandsForACallAlsoIfItsHandlerEndsElsewhere) {
  Story story;
  story.interrupt(0x1004, kFlowBreakpoint);
  story.jump(kThunk, kHandler);
  story.far_return(0x2000, kF, kFlowEntry | kFlowNamed);
  story.ret(0x1009);
  EXPECT_EQ(story.end(), "main(!handler() =thunk() f() )x ") << "the successor is no interrupt of its own";
}

TEST(CallTree, AnIretToTheNextInstructionIsNoReturn) {
  Story story;
  story.interrupt(0x1004);
  story.call(kF, 0x9010);
  story.far_return(0x2010, kF);
  story.ret(0x9010, kHandler);
  story.far_return(0x1004, kMain);
  EXPECT_EQ(story.end(), "main(!handler(f() ) )x ");
}

TEST(CallTree, AGapGivesUpAndALaterReturnTakesUp) {
  Story story;
  story.call(kF, 0x1010);
  story.call(kG, 0x2010);
  story.add({.kind = FlowKind::gap});
  story.add({.kind = FlowKind::begin, .flags = kFlowNamed, .function = kG, .to = Ip{0x3333}});
  story.ret(0x2010, kF);
  story.ret(0x1010, kMain);
  EXPECT_EQ(story.end(), "main(f(g()x )x )x LOST off on ?g() ?main(?f() )x ");
  EXPECT_EQ(story.tree().threads().at(0).lost_ns, 10U);
  EXPECT_EQ(story.tree().threads().at(0).gaps, 1U);
}

TEST(CallTree, ASignalIsAnInterruptOfWhatWasNotTracedBefore) {
  Story story;
  story.add({.kind = FlowKind::pause, .return_to = Ip{0x1004}});
  story.add({.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .function = kHandler, .to = Ip{0x9000}});
  story.ret(0x9999, kG, kFlowEntry | kFlowNamed);  // to the restorer
  story.add({.kind = FlowKind::pause, .return_to = Ip{0x9990}});
  story.add({.kind = FlowKind::begin, .flags = kFlowNamed, .function = kMain, .to = Ip{0x1004}});
  story.call(kF, 0x1010);
  EXPECT_EQ(story.end(), "main(off on !handler(off on ) f()x )x ");
}

TEST(CallTree, WhatIsNotTracedIsNobodysOwnTime) {
  Story story;
  story.call(kF, 0x1010);
  story.add({.kind = FlowKind::call, .flags = kFlowFar | kFlowUnseen, .function = kNoFunction, .return_to = Ip{0x2010}});
  story.add({.kind = FlowKind::pause, .return_to = Ip{0x2010}});
  story.add({.kind = FlowKind::begin, .flags = kFlowNamed, .function = kF, .to = Ip{0x2010}});
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(f(-(off on ) ) )x ");
  const CallStep& f = story.left()[1];
  EXPECT_EQ(f.total_ns(), 40U);
  EXPECT_EQ(f.self_ns, 20U);
  EXPECT_EQ(f.untraced_ns, 10U);
}

TEST(CallTree, ThreadsHaveStacksOfTheirOwn) {
  Story story;
  story.call(kF, 0x1010);
  story.add({.kind = FlowKind::switch_out});
  story.add({.kind = FlowKind::switch_in, .tid = 8});
  story.add(
      {.kind = FlowKind::call, .flags = kFlowEntry | kFlowNamed, .tid = 8, .function = kG, .to = Ip{0x2000}, .return_to = Ip{0x1010}});
  story.add({.kind = FlowKind::switch_out, .tid = 8});
  story.add({.kind = FlowKind::switch_in});
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(f(off g(off on ) )x )x ");
  EXPECT_EQ(story.tree().threads().at(0).off_cpu_ns, 40U);
}

TEST(CallTree, DepthIsBounded) {
  Story story;
  for (uint64_t i = 0; i < CallTree::kMaxFrames + 10; ++i) story.call(kF, 0x1010 + 16 * i);
  EXPECT_EQ(story.tree().threads().at(0).forgotten, 1U);
}

// A recording may contain any number as a thread or cpu. (analysis_ubsan runs this too.)
TEST(CallTreeThreads, AnyNumberIsAThread) {
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();
  CallTree tree(nullptr);
  std::vector<CallStep> out;
  for (const int round : {0, 1}) {
    for (const int32_t tid : {kLeast, kLeast + 1, -3, -2, -1, 0, 1, kMost}) {
      for (const int32_t cpu : {kLeast, -1, 0, kMost}) {
        tree.take({.kind = FlowKind::begin, .tid = tid, .cpu = cpu, .function = kMain, .time = TimeNs{10U + static_cast<uint64_t>(round)}}, out);
      }
    }
  }
  EXPECT_EQ(tree.threads().size(), 6U * 4 + 2);  // without a thread, or in the idle task: one per cpu
}

}  // namespace
}  // namespace ptd
