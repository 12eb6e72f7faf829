// CallTree: exceptions and longjmp out of calls of recursive functions. "f1" is a call of f, "f2" one that f1 made, and so on.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "analysis/call_flow.h"
#include "ptdecode/call_tree.h"

namespace ptd {
namespace {

constexpr FunctionId kLeftMain = 0, kLeftF = 1, kJump = 2, kSetjmp = 3, kRestore = 4, kOther = 50;

/// A thread in which main calls f.
class Thread {
 public:
  Thread() : tree_(nullptr) {
    add({.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .function = kLeftMain, .to = Ip{0x1000}});
    call(kLeftF, 0x1010);
  }
  /// `pad`: where an exception that leaves the call goes on; 0: nowhere.
  void call(FunctionId function, uint64_t return_to, uint64_t pad = 0) {
    const int32_t landing = pad == 0 ? 0 : static_cast<int32_t>(pad - return_to + 1);
    add({.kind = FlowKind::call,
         .flags = kFlowEntry | kFlowNamed,
         .function = function,
         .landing = landing,
         .to = Ip{0x3000},
         .return_to = Ip{return_to}});
  }
  void land(uint64_t pad, FlowKind kind = FlowKind::ret) {
    add({.kind = kind, .flags = kFlowNamed, .function = kLeftF, .landing = kLandsHere, .to = Ip{pad}});
  }
  void set_jump(uint64_t place, FunctionId caller = kLeftF) {
    add({.kind = FlowKind::call,
         .flags = kFlowEntry | kFlowNamed,
         .function = kSetjmp,
         .landing = kEntersSetjmp,
         .to = Ip{0x4000},
         .return_to = Ip{place}});
    ret(place, caller);
  }
  /// longjmp calls the function that restores the registers, as in glibc. `helpers`: functions of the program in between.
  void long_jump(uint64_t place, int helpers = 0) {
    for (int i = 0; i < helpers; ++i) call(kJump + 10, 0x2ff0);
    call(kJump, 0x2ff8);
    call(kRestore, 0x5008);
    add({.kind = FlowKind::jump, .flags = kFlowNamed, .function = kLeftF, .to = Ip{place}});
  }
  void ret(uint64_t to, FunctionId into = kLeftF) { add({.kind = FlowKind::ret, .flags = kFlowNamed, .function = into, .to = Ip{to}}); }
  void add(FlowStep step) {
    step.tid = 7;
    step.time = step.floor = TimeNs{now_ += 10};
    step.instructions = 5;
    std::vector<CallStep> out;
    tree_.take(step, out);
    count(out);
  }
  void restart() {
    std::vector<CallStep> out;
    tree_.restart(TimeNs{now_}, out);
    open_ = 0;
    count(out);
  }
  /// Open calls of f.
  [[nodiscard]] int open() const { return open_; }
  [[nodiscard]] uint64_t guessed() const { return tree_.threads().at(0).guessed; }
  [[nodiscard]] uint64_t forgotten() const { return tree_.threads().at(0).forgotten; }

 private:
  void count(std::span<const CallStep> steps) {
    for (const CallStep& step : steps) {
      if (step.function == kLeftF) open_ += step.kind == CallStepKind::enter ? 1 : step.kind == CallStepKind::leave ? -1 : 0;
    }
  }
  CallTree tree_;
  uint64_t now_ = 1000;
  int open_ = 0;
};

TEST(LeftCalls, AnExceptionGoesOnInTheInnermostCallWithItsLandingPad) {
  for (const FlowKind kind : {FlowKind::ret, FlowKind::jump}) {
    Thread thread;
    thread.call(kLeftF, 0x2010, 0x2100);  // of f1, in a try block
    thread.call(kLeftF, 0x2010, 0x2100);
    thread.call(kLeftF, 0x2020);  // of f3, in none
    thread.call(kLeftF, 0x2030, 0x2110);
    thread.call(kJump, 0x2020);  // __cxa_throw, of f5
    EXPECT_EQ(thread.open(), 5);
    thread.land(0x2100, kind);
    EXPECT_EQ(thread.open(), 2);
    EXPECT_EQ(thread.guessed(), 0U);
    thread.ret(0x2010);
    EXPECT_EQ(thread.open(), 1);
  }
}

// _Unwind_Resume does not return, so that the next landing pad may follow its call.
TEST(LeftCalls, AReturnAddressMayBeALandingPad) {
  {
    Thread thread;
    thread.call(kLeftF, 0x2010);
    thread.call(kJump, 0x2020, 0x2020);  // f2 calls __cxa_throw
    thread.land(0x2020);
    EXPECT_EQ(thread.open(), 2);
    EXPECT_EQ(thread.guessed(), 0U);
  }
  Thread thread;
  thread.call(kLeftF, 0x2010, 0x2108);
  thread.call(kLeftF, 0x2020, 0x2100);
  thread.call(kJump, 0x2030);
  thread.land(0x2100);
  EXPECT_EQ(thread.open(), 2);
  thread.call(kJump, 0x2108);  // f2 calls _Unwind_Resume
  thread.land(0x2108);
  EXPECT_EQ(thread.open(), 1);
}

// The handler of a fault throws. The faulting instruction and the call of f2 have one landing pad; the kernel is traced or not.
TEST(LeftCalls, AnExceptionMayGoOnInTheCallThatFaulted) {
  constexpr FunctionId kHandler = 5;
  for (const bool traced : {false, true}) {
    Thread thread;
    thread.call(kLeftF, 0x2010, 0x2100);
    const int32_t landing = 0x2100 - 0x2050 + 1;
    if (traced) {
      const Ip kernel{0xffffffff81000000};
      thread.add({.kind = FlowKind::interrupt,
                  .flags = kFlowEntry | kFlowNamed,
                  .function = kHandler + 1,
                  .landing = landing,
                  .to = kernel,
                  .return_to = Ip{0x2050}});
      thread.add({.kind = FlowKind::far_return, .flags = kFlowEntry | kFlowNamed, .function = kHandler, .to = Ip{0x6000}});
    } else {
      thread.add({.kind = FlowKind::pause, .flags = kFlowFar, .landing = landing, .return_to = Ip{0x2050}});
      thread.add({.kind = FlowKind::begin, .flags = kFlowEntry | kFlowNamed, .function = kHandler, .to = Ip{0x6000}});
    }
    thread.call(kJump, 0x6010);
    thread.land(0x2100);
    EXPECT_EQ(thread.open(), 2);
    EXPECT_EQ(thread.guessed(), 0U);
  }
}

TEST(LeftCalls, AnExceptionLeavesMoreCallsThanAreSearchedForAReturn) {
  Thread thread;
  thread.call(kLeftF, 0x2010, 0x2100);
  for (int i = 0; i < 10'000; ++i) thread.call(kLeftF, 0x2020);
  thread.call(kJump, 0x2030);
  thread.land(0x2100);
  EXPECT_EQ(thread.open(), 1);
}

TEST(LeftCalls, AnExceptionLeavesCallsBeyondTheDeepestStoredOne) {
  for (const bool inner : {false, true}) {
    Thread thread;
    thread.call(kLeftF, 0x2010, 0x2100);
    for (size_t i = 3; i < CallTree::kMaxFrames + 10; ++i) thread.call(kLeftF, 0x2020);
    if (inner) thread.call(kLeftF, 0x2010, 0x2100);
    thread.call(kJump, 0x2030);
    const int open = thread.open();
    thread.land(0x2100);
    EXPECT_EQ(thread.open(), inner ? open : 1);
    if (!inner) continue;
    for (size_t i = 3; i < CallTree::kMaxFrames + 10; ++i) thread.ret(0x2020);
    EXPECT_EQ(thread.open(), 2);
    EXPECT_EQ(thread.forgotten(), 0U);
  }
}

TEST(LeftCalls, LongjmpGoesOnInTheCallThatCalledSetjmp) {
  Thread thread;
  thread.call(kLeftF, 0x2010);
  thread.set_jump(0x2050);  // of f2
  for (int i = 0; i < 4; ++i) thread.call(kLeftF, 0x2010);
  thread.long_jump(0x2050, 1);
  EXPECT_EQ(thread.open(), 2);
  EXPECT_EQ(thread.guessed(), 0U);
  thread.call(kLeftF, 0x2010);
  thread.restart();
  thread.long_jump(0x2050, 1);  // it comes back again
  EXPECT_EQ(thread.open(), 2);
  EXPECT_EQ(thread.guessed(), 0U);
}

TEST(LeftCalls, LongjmpOfACallThatItBroughtBackGoesFurtherOut) {
  Thread thread;
  for (int i = 0; i < 3; ++i) {
    thread.set_jump(0x2050);
    thread.call(kLeftF, 0x2010);
  }
  thread.long_jump(0x2050);
  EXPECT_EQ(thread.open(), 3);
  EXPECT_EQ(thread.guessed(), 1U);
  thread.long_jump(0x2050);
  EXPECT_EQ(thread.open(), 2);
  thread.call(kLeftF, 0x2010);
  thread.long_jump(0x2050, 1);  // not of f2 itself
  EXPECT_EQ(thread.open(), 2);
  thread.set_jump(0x2050);
  thread.long_jump(0x2050);
  EXPECT_EQ(thread.open(), 2);
  EXPECT_EQ(thread.guessed(), 4U);
}

TEST(LeftCalls, SetjmpOfACallThatHasEndedDoesNotCount) {
  Thread thread;
  thread.set_jump(0x2050);  // of f1
  thread.call(kLeftF, 0x2010);
  thread.set_jump(0x2050);  // of f2
  thread.ret(0x2010);
  thread.call(kLeftF, 0x2010);
  thread.call(kLeftF, 0x2010);
  thread.long_jump(0x2050);
  EXPECT_EQ(thread.open(), 1);
  EXPECT_EQ(thread.guessed(), 0U);
}

TEST(LeftCalls, LongjmpLeavesAnyNumberOfCalls) {
  constexpr size_t kMost = CallTree::kMaxFrames;
  for (const size_t count : {size_t{252}, size_t{253}, size_t{60'000}, kMost - 4, kMost, kMost + 100'000}) {
    for (const bool setjmp : {false, true}) {
      for (const FlowKind kind : {FlowKind::jump, FlowKind::ret}) {
        Thread thread;
        if (setjmp) thread.set_jump(0x2050);
        for (size_t i = 0; i < count; ++i) thread.call(kOther, 0x6010);
        thread.call(kJump, 0x6020);
        thread.add({.kind = kind, .flags = kFlowNamed, .function = kLeftF, .to = Ip{0x2050}});
        thread.call(kLeftF, 0x2010);
        EXPECT_EQ(thread.open(), 2) << count;
        thread.ret(0x2010);
        thread.ret(0x1010, kLeftMain);
        EXPECT_EQ(thread.open(), 0) << count;
        EXPECT_EQ(thread.guessed() + thread.forgotten(), 0U) << count;
      }
    }
  }
}

// The call that called setjmp, or is the innermost of the function, is itself deeper than the deepest stored one.
TEST(LeftCalls, LongjmpGoesOnInACallBeyondTheDeepestStoredOne) {
  for (const bool setjmp : {false, true}) {
    for (const bool at_limit : {false, true}) {
      Thread thread;  // main and f1
      const size_t count = at_limit ? CallTree::kMaxFrames - 2 : CallTree::kMaxFrames + 1000;
      for (size_t i = 0; i < count; ++i) thread.call(kLeftF, 0x2010);
      const int open = thread.open();
      if (setjmp) thread.set_jump(0x2050);
      for (int i = 0; i < 2000; ++i) thread.call(kOther + i % 2, 0x6010);
      if (setjmp) thread.call(kLeftF, 0x2010);
      thread.long_jump(0x2050);
      EXPECT_EQ(thread.guessed(), setjmp ? 0U : 1U);
      EXPECT_EQ(thread.open(), open);
      for (size_t i = 0; i < count; ++i) thread.ret(0x2010);
      EXPECT_EQ(thread.open(), 1);
      EXPECT_EQ(thread.forgotten(), 0U);
    }
  }
}

// Each step of these flows would pass all open calls. They end in time only if such searches are limited.
TEST(LeftCalls, JumpsToPlacesThatAreNotOpenAreCheap) {
  for (const size_t count : {CallTree::kMaxFrames - 10, CallTree::kMaxFrames + 70'000}) {
    Thread thread;
    for (size_t i = 2; i < count; ++i) {
      thread.call(kOther + i % 2, 0x6010);
      if (i % 8 != 0) continue;
      thread.set_jump(0x100'0000 + i, kOther + i % 2);
    }
    const FunctionId top = kOther + (count - 1) % 2;
    for (int i = 0; i < 200'000; ++i) {
      thread.call(kJump, 0x6020);
      thread.add({.kind = FlowKind::ret, .flags = kFlowNamed | kFlowEntry, .function = kOther + 8, .to = Ip{0x9000}});  // a retpoline
      thread.add({.kind = FlowKind::jump, .flags = kFlowNamed, .function = kOther + 8, .landing = kLandsHere, .to = Ip{0xa000}});
      thread.add({.kind = FlowKind::jump, .flags = kFlowNamed, .function = kOther + 7, .to = Ip{0x8001}});  // not open
      thread.add({.kind = FlowKind::jump, .flags = kFlowNamed, .function = top, .to = Ip{0x6001}});         // no place of setjmp
    }
    EXPECT_EQ(thread.forgotten(), 0U);
    EXPECT_EQ(thread.open(), 1);
  }
}

// It pushes the address, and a CALL would have pushed another one.
TEST(LeftCalls, AFunctionThatJumpedToOneThatReturnsIntoItGoesOn) {
  for (const uint8_t after_call : {uint8_t{0}, kFlowAfterCall}) {
    Thread thread;
    thread.add({.kind = FlowKind::jump, .flags = kFlowNamed | kFlowEntry, .function = kOther, .from = kLeftF, .to = Ip{0x8000}});
    thread.add({.kind = FlowKind::jump, .flags = kFlowNamed | kFlowEntry, .function = kOther + 1, .from = kOther, .to = Ip{0x9000}});
    thread.call(kOther + 2, 0x9010);
    thread.ret(0x9010, kOther + 1);
    EXPECT_EQ(thread.open(), 0);
    thread.add({.kind = FlowKind::ret, .flags = static_cast<uint8_t>(kFlowNamed | after_call), .function = kLeftF, .to = Ip{0x2777}});
    EXPECT_EQ(thread.open(), 1);
    EXPECT_EQ(thread.forgotten(), after_call == 0 ? 0U : 1U);
    thread.ret(0x1010, kLeftMain);
    EXPECT_EQ(thread.open(), 0);
  }
}

// Without a call of setjmp that was seen, the innermost call of the function is taken.
TEST(LeftCalls, AJumpIntoARecursiveFunctionIsAGuess) {
  Thread thread;
  thread.long_jump(0x2050);
  EXPECT_EQ(thread.guessed(), 0U);
  thread.call(kLeftF, 0x2010);
  thread.long_jump(0x2050);
  EXPECT_EQ(thread.open(), 2);
  EXPECT_EQ(thread.guessed(), 1U);
}

}  // namespace
}  // namespace ptd
