// OpenCalls and CallPaths: paths below callers that become known later.
#include "analysis/paths/call_paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace ptd {
namespace {

constexpr uint8_t kSeen = 0;

/// Feeds steps and collects the number of calls that end, by path: "cba" is a, called by b, called by c.
class Calls {
 public:
  void enter(char function, uint32_t depth, FrameKind frame = FrameKind::call, uint8_t flags = kSeen, uint32_t thread = 0) {
    CallStep step;
    step.function = static_cast<FunctionId>(function);
    step.depth = depth;
    step.frame = frame;
    step.flags = flags;
    step.thread = thread;
    (void)open_.take(step);
  }
  void root(char function, uint32_t depth = 0, uint32_t thread = 0) { enter(function, depth, FrameKind::root, kCallNoStart, thread); }
  void leave(uint32_t depth, uint8_t flags = kSeen, uint32_t thread = 0, CallLoss loss = CallLoss::none) {
    CallStep step;
    step.loss = loss;
    step.kind = CallStepKind::leave;
    step.depth = depth;
    step.flags = flags;
    step.thread = thread;
    if (const auto ended = open_.take(step)) ++ended_[ended->call.path];
  }
  void pause() {
    CallStep step;
    step.kind = CallStepKind::off;
    (void)open_.take(step);
  }
  /// "ba 2, cba 1"
  [[nodiscard]] std::string text() const {
    const auto [paths, numbers] = open_.paths().settled();
    std::map<std::string, int> counts;
    for (const auto& [path, count] : ended_) {
      std::string name;
      for (uint32_t at = numbers[path]; at != CallPaths::kRoot; at = paths[at].parent) {
        EXPECT_LT(paths[at].parent, at);
        name.insert(name.begin(), static_cast<char>(paths[at].function));
      }
      counts[name] += count;
    }
    std::string text;
    for (const auto& [name, count] : counts) text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
    return text;
  }
  [[nodiscard]] const OpenCalls& open() const { return open_; }

 private:
  OpenCalls open_{OpenCalls::Callers::later};
  std::map<uint32_t, int> ended_;
};

TEST(CallPaths, CallersThatAreReturnedToAreAboveEarlierCalls) {
  Calls calls;
  calls.root('c');
  calls.enter('d', 1), calls.leave(1);
  calls.leave(0), calls.root('b');
  calls.enter('c', 1), calls.enter('d', 2), calls.leave(2), calls.leave(1);
  EXPECT_EQ(calls.text(), "bc 2, bcd 2");
  calls.leave(0), calls.root('a');
  calls.leave(0, kCallCut);
  EXPECT_EQ(calls.text(), "a 1, ab 1, abc 2, abcd 2");
}

// A RET to a place that no CALL comes before: coroutines that switch by RET, chains of return addresses.
TEST(CallPaths, AReturnToWhatCalledNothingIsToNoCaller) {
  Calls calls;
  for (int i = 0; i < 3; ++i) {
    for (const char function : {'x', 'y'}) calls.root(function), calls.leave(0, kSeen, 0, CallLoss::strange_return);
  }
  EXPECT_EQ(calls.text(), "x 3, y 3");
}

TEST(CallPaths, ManyCallersOneAfterTheOtherAreBounded) {
  Calls calls;
  for (size_t i = 0; i < 2 * CallPaths::kMostDepth; ++i) calls.root(i % 2 == 0 ? 'x' : 'y'), calls.leave(0);
  const auto [paths, numbers] = calls.open().paths().settled();
  EXPECT_LE(std::ranges::max_element(paths, {}, &CallPaths::Path::depth)->depth, CallPaths::kMostDepth);
  EXPECT_EQ(calls.open().paths().left_out(), 0U);
}

TEST(CallPaths, ATailCallHasTheSameCallers) {
  Calls calls;
  calls.root('c');
  calls.leave(0), calls.enter('d', 0, FrameKind::tail);
  calls.leave(0), calls.root('a');
  calls.leave(0), calls.enter('b', 0, FrameKind::tail);
  calls.leave(0), calls.root('m');
  calls.leave(0, kCallCut);
  EXPECT_EQ(calls.text(), "m 1, ma 1, mac 1, mad 1, mb 1");
}

TEST(CallPaths, AnAbandonedStackHasOtherCallers) {
  Calls calls;
  calls.root('b');
  calls.leave(0, kCallCut);  // flow is lost
  calls.root('c');
  calls.leave(0), calls.root('a');
  calls.leave(0, kCallCut);
  EXPECT_EQ(calls.text(), "a 1, ac 1, b 1");
}

TEST(CallPaths, WhatRunsAfterAPauseIsNoCaller) {
  Calls calls;
  calls.root('b');
  calls.leave(0), calls.pause();
  calls.root('a');
  calls.leave(0);
  EXPECT_EQ(calls.text(), "a 1, b 1");
}

TEST(CallPaths, ACallWhoseStartWasSeenBeginsAtTheRoot) {
  Calls calls;
  for (int i = 0; i < 3; ++i) calls.enter('b', 0), calls.leave(0), calls.pause();
  EXPECT_EQ(calls.text(), "b 3");
  EXPECT_EQ(calls.open().paths().paths().size(), 2U);
}

TEST(CallPaths, TheReturnIsToTheInnermostFunctionThatWasOpen) {
  Calls calls;
  calls.root('d');
  // CallTree takes up calls from before a gap.
  calls.leave(0), calls.root('a'), calls.root('b', 1), calls.enter('c', 2, FrameKind::inlined, kCallNoStart);
  calls.enter('e', 3), calls.leave(3);
  calls.leave(2), calls.enter('f', 2, FrameKind::inlined, kCallMiddle), calls.leave(2);
  calls.leave(1, kCallCut), calls.leave(0, kCallCut);
  EXPECT_EQ(calls.text(), "a 1, ab 1, abc 1, abcd 1, abce 1, abf 1");
  Calls later;
  later.root('d');
  // The flow came to c afterwards.
  later.leave(0), later.root('a'), later.enter('c', 1, FrameKind::inlined, kCallMiddle), later.leave(1), later.leave(0);
  EXPECT_EQ(later.text(), "a 1, ac 1, ad 1");
}

TEST(CallPaths, ThreadsHaveCallersOfTheirOwn) {
  Calls calls;
  calls.root('b', 0, 0), calls.root('b', 0, 1), calls.root('b', 0, 2);
  for (const uint32_t thread : {0U, 1U, 2U}) calls.enter('c', 1, FrameKind::call, kSeen, thread), calls.leave(1, kSeen, thread);
  calls.leave(0, kSeen, 0), calls.root('x', 0, 0);
  calls.leave(0, kSeen, 1), calls.root('y', 0, 1);
  for (const uint32_t thread : {0U, 1U, 2U}) calls.leave(0, kCallCut, thread);
  EXPECT_EQ(calls.text(), "b 1, bc 1, x 1, xb 1, xbc 1, y 1, yb 1, ybc 1");
}

TEST(CallPaths, ALongReturnIsBounded) {
  Calls calls;
  for (int i = 0; i < 100'000; ++i) calls.root('r'), calls.leave(0);
  const auto [paths, numbers] = calls.open().paths().settled();
  EXPECT_EQ(paths.size(), CallPaths::kMostDepth + 1);
  EXPECT_EQ(std::max_element(paths.begin(), paths.end(), [](const auto& a, const auto& b) { return a.depth < b.depth; })->depth,
            CallPaths::kMostDepth);
}

TEST(CallPaths, ManyThreadsShareTheirPaths) {
  OpenCalls open(OpenCalls::Callers::later);
  CallStep step;
  const auto enter = [&](uint32_t thread, FunctionId function, uint32_t depth) {
    step.kind = CallStepKind::enter;
    step.thread = thread;
    step.function = function;
    step.depth = depth;
    step.frame = depth == 0 ? FrameKind::root : FrameKind::call;
    step.flags = depth == 0 ? kCallNoStart : kSeen;
    (void)open.take(step);
  };
  constexpr uint32_t kFunctions = 1000, kThreads = CallPaths::kMostPaths / kFunctions;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    enter(thread, 0, 0);
    for (uint32_t function = 1; function < kFunctions; ++function) enter(thread, function, 1);
  }
  EXPECT_LT(open.paths().paths().size(), CallPaths::kMostPaths / 2 + 2 * kFunctions + kThreads);
  EXPECT_EQ(open.paths().left_out(), 0U);
  for (uint32_t thread = 0; thread < kThreads; ++thread) {  // all are open, and end where they began
    step.kind = CallStepKind::leave;
    step.thread = thread;
    step.depth = 1;
    const auto ended = open.take(step);
    ASSERT_TRUE(ended);
    const CallPaths::Path& path = open.paths().paths()[ended->call.path];
    EXPECT_EQ(path.function, kFunctions - 1);
    EXPECT_EQ(open.paths().paths()[path.parent].function, 0U);
  }
  EXPECT_EQ(open.paths().settled().paths.size(), kFunctions + 1);
}

}  // namespace
}  // namespace ptd
