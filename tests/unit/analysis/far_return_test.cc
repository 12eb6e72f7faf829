// CallTree: far returns of programs, which stay in user code, beside those of the kernel.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/call_flow.h"
#include "ptdecode/call_tree.h"

namespace ptd {
namespace far_returns {

constexpr uint64_t kKernelText = 0xffffffff81000000;
constexpr FunctionId kMain = 0, kF = 1, kG = 2, kHandler = 3;
constexpr const char* kNames[] = {"main", "f", "g", "handler"};
constexpr uint8_t kStart = kFlowEntry | kFlowNamed;

/// Writes the tree: "f(" where a call begins, ")" where it ends, "?" if its start was not seen, "=" if it was entered by a jump.
class Program {
 public:
  explicit Program(uint64_t start = 0x1000) { add({.kind = FlowKind::begin, .flags = kStart, .function = kMain, .to = Ip{start}}); }
  void call(FunctionId function, uint64_t return_to) {
    add({.kind = FlowKind::call, .flags = kStart, .function = function, .to = Ip{0x2000}, .return_to = Ip{return_to}});
  }
  /// Enters the kernel in `function`.
  void system_call(FunctionId function, uint64_t return_to) {
    add({.kind = FlowKind::call, .flags = kStart | kFlowFar, .function = function, .to = Ip{kKernelText}, .return_to = Ip{return_to}});
  }
  /// The flow is lost, and resumes.
  void lose(uint64_t at, FunctionId into) {
    add({.kind = FlowKind::gap});
    add({.kind = FlowKind::begin, .flags = kFlowNamed, .function = into, .to = Ip{at}});
  }
  void ret(uint64_t to, FunctionId into) {
    add({.kind = FlowKind::ret, .flags = kFlowNamed, .function = into, .to = Ip{to}, .return_to = Ip{0x2ff1}});
  }
  void far_return(uint64_t to, FunctionId into, uint8_t flags = kFlowNamed, uint64_t next = 0x2ff2) {
    add({.kind = FlowKind::far_return, .flags = flags, .function = into, .to = Ip{to}, .return_to = Ip{next}});
  }
  /// Tracing stops before `due`, and goes on at `at`.
  void pause(uint64_t due, uint64_t at, FunctionId into, uint8_t flags = kFlowNamed) {
    add({.kind = FlowKind::pause, .flags = kFlowFar, .return_to = Ip{due}});
    add({.kind = FlowKind::begin, .flags = flags, .function = into, .to = Ip{at}});
  }
  std::string end() {
    std::vector<CallStep> out;
    tree_.finish(out);
    tell(out);
    return text_;
  }
  [[nodiscard]] const CallThread& thread() const { return tree_.threads().at(0); }
  [[nodiscard]] uint64_t ends() const { return ends_; }

 private:
  void add(FlowStep step) {
    step.tid = 7;
    step.time = step.floor = TimeNs{now_ += 10};
    std::vector<CallStep> out;
    tree_.take(step, out);
    tell(out);
  }
  void tell(const std::vector<CallStep>& out) {
    for (const CallStep& step : out) {
      if (step.kind == CallStepKind::enter) {
        text_ += (step.flags & kCallNoStart) != 0     ? "?"
                 : step.frame == FrameKind::tail      ? "="
                 : step.frame == FrameKind::interrupt ? "!"
                                                      : "";
        text_ += std::string(kNames[step.function]) + "(";
      } else if (step.kind == CallStepKind::leave) {
        if ((step.flags & kCallCut) == 0) ++ends_;
        text_ += (step.flags & kCallCut) != 0 ? ")x " : ") ";
      }
    }
  }
  CallTree tree_{nullptr};
  uint64_t now_ = 1000, ends_ = 0;
  std::string text_;
};

TEST(FarReturn, OfAProgramEndsNoOpenCall) {
  Program within, away;
  within.call(kF, 0x1010);
  within.far_return(0x2010, kF);
  within.ret(0x1010, kMain);
  EXPECT_EQ(within.end(), "main(f() )x ");
  away.call(kF, 0x1010);
  away.far_return(0x3000, kG, kStart);
  away.ret(0x1010, kMain);
  EXPECT_EQ(away.end(), "main(f() =g() )x ");
}

TEST(FarReturn, OfAProgramReturnsFromTheOpenCallThatAwaitsIt) {
  Program program;
  program.call(kF, 0x1010);
  program.call(kF, 0x2010);
  program.far_return(0x2010, kF);
  program.call(kG, 0x2020);
  program.far_return(0x1010, kMain);  // out of two calls
  EXPECT_EQ(program.end(), "main(f(f() g() ) )x ");
}

TEST(FarReturn, OfAProgramEndsNoHandlerOfASignal) {
  Program program;
  program.pause(0x1004, 0x3000, kG, kStart);
  program.far_return(0x3010, kG);
  program.call(kF, 0x3020);
  program.far_return(0x3000, kG, kStart);
  program.ret(0x3020, kG);
  EXPECT_EQ(program.end(), "main(!g(f() =g() )x )x ");
}

// As recorded with `record --emulate` of version 0.1, or where an address filter leaves out the target.
TEST(FarReturn, OfAProgramToCodeThatIsNotSeenEndsNoOpenCall) {
  Program program;
  program.call(kF, 0x1010);
  program.far_return(0, kNoFunction, kFlowUnseen);
  program.pause(0x2ff2, 0x2010, kF);
  program.ret(0x1010, kMain);
  EXPECT_EQ(program.end(), "main(f() )x ");
}

TEST(FarReturn, OfAProgramEndsNoCallBeyondTheDeepestStoredOne) {
  constexpr uint64_t kDepth = CallTree::kMaxFrames + 8;
  Program program;
  for (uint64_t i = 1; i < kDepth; ++i) program.call(i + 1 == kDepth ? kG : kF, 0x10000 + i);
  program.far_return(0x3010, kG);
  program.far_return(0, kNoFunction, kFlowUnseen);
  program.ret(0x3020, kG);  // a computed jump within the function
  program.far_return(0x1000, kMain, kStart);
  program.ret(0x1020, kMain);
  for (uint64_t i = kDepth; --i != 0;) program.ret(0x10000 + i, i == 1 ? kMain : kF);
  EXPECT_EQ(program.ends(), CallTree::kMaxFrames - 1);
  EXPECT_EQ(program.thread().forgotten, 0U);
}

TEST(FarReturn, OfTheKernelEndsCallsWhoseStartWasNotSeen) {
  Program program(kKernelText);
  program.call(kF, kKernelText + 0x10);
  program.far_return(0x3010, kG, kFlowNamed, kKernelText + 0x100);
  EXPECT_EQ(program.end(), "main(f() ) ?g()x ");
}

// What a return after a gap leads back to is the system call that it was, and a signal's handler begins where that returns.
TEST(FarReturn, OfASystemCallThatWasTakenUpAfterAGap) {
  for (const bool gap : {false, true}) {
    Program program;
    program.system_call(kF, 0x1010);
    program.call(kG, kKernelText + 0x20);
    if (gap) program.lose(kKernelText + 0x500, kG);
    program.ret(kKernelText + 0x20, kF);
    program.far_return(0x9000, kHandler, kStart, kKernelText + 0x40);
    program.system_call(kF, 0x9010);
    program.far_return(0x1010, kMain, kFlowNamed, kKernelText + 0x40);
    const std::string handled = " !handler(f() ) )x ";
    EXPECT_EQ(program.end(), gap ? "main(f(g()x )x )x ?g() ?main(?f()" + handled : "main(f(g() )" + handled);
  }
}

}  // namespace far_returns
}  // namespace ptd
