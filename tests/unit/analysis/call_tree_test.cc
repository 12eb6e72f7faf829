// CallTree: results for calls and returns that do not match. Each case is given as steps of flow and read as an indented tree.
#include "ptdecode/call_tree.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "analysis/call_flow.h"
#include "analysis/tree/folded_calls.h"

namespace ptd {
namespace {

constexpr uint64_t kKernelText = 0xffffffff81000000;
constexpr FunctionId kMain = 0, kF = 1, kG = 2, kThunk = 3, kHandler = 4, kKernel = 5;
constexpr const char* kNames[] = {"main", "f", "g", "thunk", "handler", "kernel"};

/// Feeds steps 10 ns apart and writes the tree: "f(" where a call begins, ")" with a letter where it ends, and special steps in between.
class Story {
 public:
  Story() : tree_(nullptr) { add({.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .function = kMain, .to = Ip{0x1000}}); }

  void add(FlowStep step, uint32_t instructions = 5) {
    step.tid = step.tid < 0 ? 7 : step.tid;
    step.time = step.floor = TimeNs{now_ += 10};
    step.instructions = instructions;
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
  /// A system call, of which the kernel is not traced.
  void untraced_syscall(uint64_t return_to) {
    add({.kind = FlowKind::call, .flags = kFlowFar | kFlowUnseen, .function = kKernel, .return_to = Ip{return_to}});
    stop(return_to);
  }
  void stop(uint64_t due) { add({.kind = FlowKind::pause, .flags = kFlowFar | kFlowPlaced, .return_to = Ip{due}}, 0); }
  void window(int32_t cpu) { add({.kind = FlowKind::pause, .flags = kFlowWindow, .cpu = cpu}, 0); }
  void begin(uint64_t at, FunctionId function, uint8_t flags = kFlowNamed, FunctionId starts = kNoFunction) {
    add({.kind = FlowKind::begin, .flags = flags, .function = function, .from = starts, .to = Ip{at}}, 0);
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

TEST(CallTree, CallsEndWithTheWindowOfTrace) {
  Story story;
  story.call(kF, 0x1010);
  story.stop(0x2020);  // the sample's interrupt
  story.window(-1);
  story.begin(0x3030, kG);  // not a handler, though it is another place than was interrupted
  story.ret(0x1010);        // nor does main go on, which was called anew perhaps
  EXPECT_EQ(story.end(), "main(f(off )x )x LOST on ?g() ?main()x ");
  EXPECT_EQ(story.left()[0].time, story.left()[1].time);
  EXPECT_EQ(story.left()[1].total_ns(), 20U);  // up to the interrupt
  EXPECT_EQ(story.left()[1].untraced_ns, 0U);
  EXPECT_EQ(story.tree().threads()[0].gaps, 0U);
  EXPECT_EQ(story.tree().threads()[0].forgotten, 0U);
}

TEST(CallTree, AWindowOfACpuEndsTheCallsOfThreadsThatItMayHaveRun) {
  Story story;
  story.call(kF, 0x1010);
  story.add({.kind = FlowKind::switch_out});
  const auto on = [&](int32_t tid, int32_t cpu, FlowStep step) {
    step.tid = tid;
    step.cpu = cpu;
    story.add(step);
  };
  on(8, 1, {.kind = FlowKind::begin, .flags = kFlowNamed, .function = kG, .to = Ip{0x3000}});
  on(9, 0, {.kind = FlowKind::begin, .flags = kFlowNamed, .function = kHandler, .to = Ip{0x4000}});
  on(9, 0, {.kind = FlowKind::pause, .flags = kFlowWindow});
  on(9, 0, {.kind = FlowKind::begin, .flags = kFlowNamed, .function = kThunk, .to = Ip{0x5000}});
  // It ran meanwhile.
  on(8, 1, {.kind = FlowKind::call, .flags = kFlowEntry | kFlowNamed, .function = kF, .to = Ip{0x2000}, .return_to = Ip{0x3010}});
  story.add({.kind = FlowKind::switch_in});
  story.begin(0x2020, kF);
  EXPECT_EQ(story.end(), "main(f(off ?g(?handler(off )x LOST on ?thunk(f()x )x LOST on ?f()x )x )x )x ");
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
  story.call(kThunk, 0x1010);  // CallFlow leaves out its inner call, which only fills the return stack
  story.ret(0x3000, kG, kFlowEntry | kFlowNamed);
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(thunk() =g() )x ");
}

TEST(CallTree, ARetpolineInItsOwnFunctionLeavesThatOpen) {
  Story story;
  story.call(kF, 0x1010);
  // Gcc -mindirect-branch=thunk-inline.
  story.add({.kind = FlowKind::call, .flags = kFlowNamed, .function = kF, .to = Ip{0x2004}, .return_to = Ip{0x2020}});
  story.ret(0x3000, kG, kFlowEntry | kFlowNamed);
  story.ret(0x2020, kF);
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(f(~f() =g() ) )x ");
}

TEST(CallTree, ARetpolineMayCallItsOwnFunction) {
  Story story;
  story.call(kF, 0x1010);
  story.add({.kind = FlowKind::call, .flags = kFlowNamed, .function = kF, .to = Ip{0x2004}, .return_to = Ip{0x2020}});
  story.ret(0x2000, kF, kFlowEntry | kFlowNamed);
  story.ret(0x2020, kF);
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(f(~f() =f() ) )x ");
}

TEST(CallTree, ACallIntoTheMiddleIsNoCallOfTheFunction) {
  for (const uint8_t uncertain : {uint8_t{0}, kFlowUncertain}) {  // on both paths of the tree
    Story story;
    story.add({.kind = FlowKind::call,
               .flags = static_cast<uint8_t>(kFlowNamed | uncertain),
               .function = kF,
               .to = Ip{0x2004},
               .return_to = Ip{0x1010}});
    story.ret(0x1010);
    EXPECT_EQ(story.end(), "main(~f() )x ") << int{uncertain};
  }
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
  story.interrupt(kKernelText + 0x1004, kFlowBreakpoint);
  story.far_return(kKernelText + 0x2000, kF, kFlowEntry | kFlowNamed);
  story.ret(kKernelText + 0x1009);
  story.call(kG, 0x1020);
  EXPECT_EQ(story.end(), "main(!handler() f() g()x )x ");
}

TEST(CallTree, AnInt3StandsForACallAlsoIfItsHandlerEndsElsewhere) {
  Story story;
  story.interrupt(kKernelText + 0x1004, kFlowBreakpoint);
  story.jump(kThunk, kHandler);
  story.far_return(kKernelText + 0x2000, kF, kFlowEntry | kFlowNamed);
  story.ret(kKernelText + 0x1009);
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

TEST(CallTree, AReturnFromACallOlderThanTheFlowMayGoToAFunctionsStart) {
  for (const bool after_call : {false, true}) {
    Story story;
    story.ret(0x5000, kF);
    story.call(kThunk, 0x5010);
    story.ret(0x5010, kF);
    story.ret(0x6000, kG, static_cast<uint8_t>(kFlowEntry | kFlowNamed | (after_call ? kFlowAfterCall : 0)));
    EXPECT_EQ(story.end(), after_call ? "main() ?f(thunk() ) ?g()x " : "main() ?f(thunk() ) =g()x ")
        << "otherwise the RET serves as a jump, as at ret_from_fork";
  }
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

TEST(CallTree, ASignalInASystemCallEndsTheSystemCall) {
  for (const uint64_t resumed : {0x2010, 0x200e}) {  // after the system call, or at SYSCALL again
    for (const uint8_t known : {kFlowNamed, uint8_t{0}}) {
      const auto entry = static_cast<uint8_t>(known == 0 ? 0 : kFlowEntry | kFlowNamed);
      Story story;
      story.call(kF, 0x1010);
      story.untraced_syscall(0x2010);
      story.begin(0x9000, kHandler, entry, kHandler);
      story.ret(0x9900, kG, entry);  // to the restorer
      story.untraced_syscall(0x9909);
      story.begin(resumed, kF, known);
      story.call(kThunk, 0x2020);
      story.ret(0x2020, kF);
      story.ret(0x1010);
      EXPECT_EQ(story.end(), "main(f(kernel(off on ) !handler() =g(kernel(off on ) ) thunk() ) )x ") << resumed << " " << int{known};
    }
  }
}

TEST(CallTree, ASignalDuringASigreturnIsAnInterruptOfTheSameCode) {
  Story story;
  story.untraced_syscall(0x1010);
  story.begin(0x9000, kHandler, 0, kHandler);
  story.ret(0x9900, kG, 0);
  story.untraced_syscall(0x9909);
  story.begin(0x9100, kThunk, 0, kThunk);
  story.ret(0x9900, kG, 0);
  story.untraced_syscall(0x9909);
  story.begin(0x1010, kMain, 0);
  story.call(kF, 0x1020);
  EXPECT_EQ(story.end(), "main(kernel(off on ) !handler() =g(kernel(off on ) ) !thunk() =g(kernel(off on ) ) f()x )x ");
}

TEST(CallTree, ASigreturnMayBeRunAgain) {
  for (const bool at_entry : {false, true}) {
    const auto flags = static_cast<uint8_t>(at_entry ? kFlowEntry | kFlowNamed : kFlowNamed);
    Story story;
    story.call(kF, 0x1010);
    story.stop(0x2000);
    story.begin(0x9000, kHandler, kFlowEntry | kFlowNamed, kHandler);
    story.ret(0x9900, kG, kFlowEntry | kFlowNamed);
    story.untraced_syscall(0x9909);
    story.begin(0x9907, kG, kFlowNamed);
    story.untraced_syscall(0x9909);
    story.begin(0x2000, kF, flags);
    story.ret(0x1010);
    EXPECT_EQ(story.end(), "main(f(off on !handler() =g(kernel(off on ) kernel(off on ) ) ) )x ") << at_entry;
  }
}

TEST(CallTree, AHandlerMayReturnElsewhere) {
  for (const uint8_t known : {kFlowNamed, uint8_t{0}}) {
    Story story;
    story.call(kF, 0x1010);
    story.stop(0x2004);  // a fault
    story.begin(0x9000, kHandler, 0, kHandler);
    story.ret(0x9900, kG, 0);
    story.untraced_syscall(0x9909);
    story.begin(0x2006, kF, known);  // after the instruction
    story.ret(0x1010);
    EXPECT_EQ(story.end(), "main(f(off on !handler() =g(kernel(off on ) ) ) )x ");
  }
}

TEST(CallTree, ASignalOfATracedKernelIsAnInterruptOfUserCode) {
  Story story;
  const auto kernel_entry = [&](uint64_t return_to) {
    story.add({.kind = FlowKind::call,
               .flags = kFlowFar | kFlowEntry | kFlowNamed,
               .function = kKernel,
               .to = Ip{kKernelText},
               .return_to = Ip{return_to}});
  };
  story.call(kF, 0x1010);
  kernel_entry(0x2010);
  story.interrupt(kKernelText + 0x500);  // of the kernel
  story.far_return(0x9000, kThunk, kFlowEntry | kFlowNamed);
  story.ret(0x9900, kG, kFlowEntry | kFlowNamed);
  kernel_entry(0x9909);
  story.far_return(0x2010, kF);
  story.ret(0x1010);
  EXPECT_EQ(story.end(), "main(f(kernel(!handler() ) !thunk() =g(kernel() ) ) )x ");
}

// A recursive function is interrupted at the address that its caller's call returns to.
TEST(CallTree, AnInterruptAtAReturnAddressEndsNoCall) {
  Story story;
  story.call(kF, 0x2010);
  story.call(kF, 0x2010);
  story.stop(0x2010);
  story.begin(0x2010, kF);
  story.ret(0x2010, kF);
  story.ret(0x2010, kF);
  EXPECT_EQ(story.end(), "main(f(f(off on ) ) )x ");
}

TEST(CallTree, UntracedCodeRunsNoInstructionsWhateverTheStepsAre) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto ip = [&] { return 0x1000 + 2 * (random() % 12) + (random() % 8 == 0 ? kKernelText : 0); };
    Story story;
    for (int i = 0; i < 60; ++i) {
      FlowStep step;
      step.to = Ip{ip()};
      step.return_to = Ip{ip()};
      step.function = static_cast<FunctionId>(random() % 6);
      step.flags = random() % 2 == 0 ? kFlowNamed : static_cast<uint8_t>(random() % 4);
      constexpr FlowKind kKinds[] = {FlowKind::call,  FlowKind::ret, FlowKind::jump, FlowKind::interrupt, FlowKind::far_return,
                                     FlowKind::pause, FlowKind::gap, FlowKind::call, FlowKind::begin};
      step.kind = kKinds[random() % std::size(kKinds)];
      const bool unseen = step.kind == FlowKind::call && random() % 2 == 0;
      if (unseen) step.flags |= static_cast<uint8_t>(random() % 2 == 0 ? kFlowUnseen : kFlowUnseen | kFlowFar);
      if (unseen && random() % 2 == 0) step.function = kNoFunction;
      story.add(step);
      if (!unseen && step.kind != FlowKind::pause && step.kind != FlowKind::gap) continue;
      if (unseen) story.stop(step.return_to.value);
      step.flags &= static_cast<uint8_t>(~(kFlowUnseen | kFlowFar));
      step.function = static_cast<FunctionId>(random() % 6);
      story.begin(random() % 2 == 0 ? step.return_to.value : ip(), step.function, step.flags);
    }
    story.end();
    for (const CallStep& left : story.left()) {
      if ((left.flags & kCallUntraced) == 0 && left.function != kNoFunction) continue;
      EXPECT_EQ(left.self_instructions + left.self_ns, 0U) << seed;
    }
  }
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
  EXPECT_EQ(f.untraced_ns, 20U);  // from the call that left the traced code to where tracing resumed
  EXPECT_EQ(story.left()[0].self_ns, 0U);
}

TEST(CallTree, TheEndOfAFlowIsWhatInterruptedItForGood) {
  Story crashes;
  crashes.call(kF, 0x1010);
  crashes.stop(0x2004);
  EXPECT_FALSE(crashes.tree().end_of(0).has_value());  // not yet known
  EXPECT_EQ(crashes.end(), "main(f(off )x )x ");
  ASSERT_TRUE(crashes.tree().end_of(0).has_value());
  EXPECT_EQ(crashes.tree().end_of(0)->ip, Ip{0x2004});

  Story exits;
  exits.untraced_syscall(0x1010);
  exits.end();
  EXPECT_FALSE(exits.tree().end_of(0).has_value());

  Story resumes;
  resumes.stop(0x1004);
  resumes.begin(0x1004, kMain);
  resumes.end();
  EXPECT_FALSE(resumes.tree().end_of(0).has_value());
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

TEST(CallTree, AThreadThatASwitchFindsRunningRunsAFunction) {
  Story story;
  story.add({.kind = FlowKind::switch_out});
  story.add({.kind = FlowKind::switch_in, .tid = 8}, 0);
  story.add({.kind = FlowKind::ret, .flags = kFlowNamed, .tid = 8, .function = kG, .from = kF, .to = Ip{0x5000}});
  EXPECT_EQ(story.end(), "main(off ?f() ?g()x )x ");
  EXPECT_EQ(story.left().at(0).function, kF);
  EXPECT_EQ(story.left().at(0).self_instructions, 5U);
}

/// Recursion of f, deeper by `folded` than the stack is stored. `apart`: the bytes between the return addresses of two calls.
struct Recursion {
  explicit Recursion(uint64_t folded, uint64_t apart) : depth(CallTree::kMaxFrames - 1 + folded), stride(apart) {
    for (uint64_t i = 0; i < depth; ++i) story.call(kF, place(i));
  }
  [[nodiscard]] uint64_t place(uint64_t i) const { return 0x1010 + stride * i; }
  void unwind() {
    while (depth-- > 0) story.ret(place(depth), depth == 0 ? kMain : kF);
  }
  [[nodiscard]] const CallThread& thread() const { return story.tree().threads().at(0); }
  /// Checks that each stored call of f ended at its return, and main with the trace.
  void expect_whole() {
    (void)story.end();
    const std::vector<CallStep>& left = story.left();
    ASSERT_EQ(left.size(), CallTree::kMaxFrames);
    for (size_t i = 0; i + 1 < left.size(); ++i) {
      ASSERT_EQ(left[i].function, kF);
      ASSERT_EQ(left[i].flags & kCallCut, 0);
      ASSERT_EQ(left[i].total_ns(), left.front().total_ns() + 20 * i);
    }
    EXPECT_EQ(left.back().function, kMain);
    EXPECT_EQ(thread().forgotten, 0U);
  }
  Story story;
  uint64_t depth, stride;
};

TEST(CallTree, CallsBeyondTheDeepestStoredOneArePartOfIt) {
  for (const uint64_t stride : {0, 16}) {
    Recursion recursion(1000, stride);
    EXPECT_EQ(recursion.thread().folded, 1000U);
    recursion.unwind();
    recursion.expect_whole();
    EXPECT_EQ(recursion.story.left().front().total_ns(), 10U * (2 * 1000 + 1));
    EXPECT_EQ(recursion.story.left().front().self_instructions, 5U * (2 * 1000 + 1));
  }
}

TEST(CallTree, AnyNumberOfCallsMayBeBeyondTheDeepestStoredOne) {
  Recursion recursion(FoldedCalls::kMostRuns + 1000, 16);
  recursion.unwind();
  recursion.expect_whole();
}

TEST(CallTree, SignalsAndSystemCallsEndAlsoBeyondTheDeepestStoredCall) {
  for (const uint64_t folded : {0, 2}) {
    Recursion recursion(folded, 16);
    Story& story = recursion.story;
    story.untraced_syscall(0x2040);
    story.begin(0x2040, kF);
    story.stop(0x2080);  // a signal: its handler calls g, returns to code that calls sigreturn
    story.begin(0x4000, kHandler, kFlowNamed | kFlowEntry);
    story.call(kG, 0x4010);
    story.ret(0x4010, kHandler);
    story.ret(0x5000, kThunk, kFlowNamed | kFlowEntry);
    story.untraced_syscall(0x5008);
    story.begin(0x2080, kF);
    story.interrupt(0x2084);
    story.far_return(0x2084, kF);
    recursion.unwind();
    (void)story.end();
    EXPECT_EQ(recursion.thread().forgotten, 0U);
    EXPECT_EQ(story.left().back().function, kMain);
    uint64_t cut = 0;
    for (const CallStep& step : story.left()) cut += (step.flags & kCallCut) != 0 ? 1 : 0;
    EXPECT_EQ(cut, 1U);
  }
}

TEST(CallTree, TracedCodeEndsUntracedCodeAlsoAtTheDeepestStoredCall) {
  Recursion recursion(0, 16);
  Story& story = recursion.story;
  story.ret(recursion.place(--recursion.depth), kF);
  story.add({.kind = FlowKind::call, .flags = kFlowUnseen, .return_to = Ip{0x2040}});
  // Untraced code calls it back.
  story.add({.kind = FlowKind::call, .flags = kFlowEntry | kFlowNamed, .function = kG, .to = Ip{0x2000}, .return_to = Ip{0x4010}}, 0);
  story.ret(0x4010, kF);
  recursion.unwind();
  (void)story.end();
  EXPECT_EQ(recursion.thread().forgotten, 0U);
  for (const CallStep& step : story.left()) {
    if ((step.flags & kCallUntraced) != 0) {
      EXPECT_EQ(step.self_instructions, 0U);
    }
  }
  EXPECT_EQ(story.left().back().function, kMain);
}

TEST(CallTree, AReturnThatNoCallExplainsAbandonsTheStackAtAnyDepth) {
  Recursion recursion(1000, 0);
  recursion.story.ret(0x777, kG);
  EXPECT_EQ(recursion.thread().forgotten, 1U);
  recursion.story.call(kF, 0x1010);
  recursion.story.ret(0x1010, kG);
  EXPECT_EQ(recursion.thread().forgotten, 1U);
}

TEST(CallTree, AnotherProgramIsNoUnexplainedPlace) {
  Story story;
  story.add({.kind = FlowKind::begin, .flags = kFlowNamed, .space = SpaceId{1}, .function = kMain, .to = Ip{0x1000}});
  story.add({.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .space = SpaceId{2}, .function = kF, .to = Ip{0x1000}});
  EXPECT_EQ(story.tree().threads().at(0).forgotten, 0U);
  EXPECT_EQ(story.end(), "main()x LOST f()x ");
}

}  // namespace
}  // namespace ptd
