// CallSequences: what of a thread is compared where its calls are not known to the end.
#include "analysis/paths/call_sequence.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ptd {
namespace {

/// Feeds the steps of one thread whose functions have names of one letter.
class Steps {
 public:
  Steps& enter(char function, FrameKind frame = FrameKind::call) {
    CallStep step;
    step.frame = frame;
    step.flags = frame == FrameKind::root ? kCallNoStart : 0;
    return add(step, function);
  }
  Steps& leave(uint8_t flags = 0) {
    CallStep step;
    step.kind = CallStepKind::leave;
    step.flags = flags;
    return add(step, open_.back());
  }
  /// All open calls are cut.
  Steps& lose(CallLoss why) {
    while (!open_.empty()) leave(kCallCut);
    CallStep step;
    step.kind = CallStepKind::lost;
    step.loss = why;
    step.time = TimeNs{++time_};
    sequences_.take(step, name_, 1);
    return *this;
  }
  Steps& rename(const char* name) {
    name_ = name;
    return *this;
  }
  std::string name() const { return sequences_.threads()[0].comm; }
  /// "+a +b -b": the calls that are compared, and what ends the comparison.
  std::string text() {
    sequences_.finish();
    std::string text;
    for (const CallMoment& moment : sequences_.kept(0)) text += (moment.enters ? '+' : '-') + functions_.info(moment.function).name + ' ';
    const CallSequence& thread = sequences_.threads()[0];
    EXPECT_EQ(thread.loss == CallLoss::none, thread.lost == kTimeMin);
    return text + sentence(thread.loss);
  }

 private:
  Steps& add(CallStep step, char function) {
    step.function = functions_.intern(std::string(1, function), "");
    step.time = TimeNs{++time_};
    if (step.kind == CallStepKind::leave) open_.pop_back();
    step.depth = static_cast<uint32_t>(open_.size());
    if (step.kind == CallStepKind::enter) open_.push_back(function);
    sequences_.take(step, name_, 1);
    return *this;
  }

  const char* name_ = "thread";
  FunctionTable functions_;
  ModuleMatch modules_;
  CallSequences sequences_{functions_, modules_, {{0, {0, 100}}}};
  std::vector<char> open_;
  uint64_t time_ = 0;
};

TEST(CallSequence, CallsAfterAnAbandonedStackAreCompared) {
  for (const CallLoss why : {CallLoss::strange_return, CallLoss::strange_resume, CallLoss::new_program}) {
    Steps steps;
    steps.enter('m').enter('s').lose(why).enter('c', FrameKind::root).enter('l').leave();
    EXPECT_EQ(steps.text(), "+m +s +c +l -l nothing was lost");
  }
}

TEST(CallSequence, NothingIsComparedAfterLostFlow) {
  for (const CallLoss why : {CallLoss::gap, CallLoss::window, CallLoss::claimed}) {
    Steps steps;
    steps.enter('m').enter('s').leave().lose(why).enter('m', FrameKind::root).enter('l').leave().lose(CallLoss::strange_return);
    EXPECT_EQ(steps.text(), std::string("+m +s -s ") + sentence(why));
  }
}

TEST(CallSequence, WhereAnInterruptEndsIsNotKnownIfItsStackIsAbandoned) {
  Steps steps;
  steps.enter('m').enter('i', FrameKind::interrupt).enter('h').lose(CallLoss::strange_return).enter('x', FrameKind::root);
  EXPECT_EQ(steps.text(), std::string("+m ") + sentence(CallLoss::strange_return));
  Steps after;
  after.enter('m').enter('i', FrameKind::interrupt).leave().lose(CallLoss::strange_return).enter('x', FrameKind::root);
  EXPECT_EQ(after.text(), "+m +x nothing was lost");
}

// A thread that names itself after each client is matched by its first name, a program that a shell starts by its own.
TEST(CallSequences, NamesAreThoseOfTheProgram) {
  EXPECT_EQ(Steps().rename("worker").enter('a').leave().rename("client-1").enter('a').leave().name(), "worker");
  EXPECT_EQ(Steps().rename("sh").enter('a').lose(CallLoss::new_program).rename("server").enter('m').rename("x").enter('a').name(),
            "server");
}

}  // namespace
}  // namespace ptd
