// CallTree: a probed function is one call, although the slot of its probe is code of another name.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/call_flow.h"
#include "ptdecode/call_tree.h"

namespace ptd {
namespace {

constexpr uint64_t kText = 0xffffffff81000000, kSlots = 0xffffffffc0000000;
constexpr uint8_t kStart = kFlowEntry | kFlowNamed;
constexpr FunctionId kMain = 0, kProbed = 1, kHandler = 2, kSlot = 3, kCallback = 4;
constexpr const char* kNames[] = {"main", "probed", "handler", "slot", "callback"};

// Returns each call when it ends, with its duration. Steps are 10 ns apart; the function is called at 10.
std::string calls_of(const std::vector<FlowStep>& steps) {
  CallTree tree(nullptr);
  std::vector<CallStep> out;
  uint64_t now = 0;
  const auto take = [&](FlowStep step) {
    step.tid = 7;
    step.time = step.floor = TimeNs{1000 + now};
    step.instructions = 5;
    now += 10;
    tree.take(step, out);
  };
  take({.kind = FlowKind::begin, .flags = kStart, .function = kMain, .to = Ip{kText}});
  take({.kind = FlowKind::call, .flags = kStart, .function = kProbed, .to = Ip{kText + 0x100}, .return_to = Ip{kText + 5}});
  for (const FlowStep& step : steps) take(step);
  take({.kind = FlowKind::ret, .flags = kFlowNamed, .function = kMain, .to = Ip{kText + 5}});
  std::string text;
  for (const CallStep& step : out) {
    EXPECT_TRUE(step.function != kSlot || (step.flags & (kCallNoStart | kCallMiddle)) == 0);  // each entry of it is a call
    if (step.kind == CallStepKind::leave)
      text += std::string(kNames[step.function]) + " " + std::to_string(step.time.value - step.start.value) + "; ";
  }
  return text;
}

const FlowStep kTrap{.kind = FlowKind::interrupt,
                     .flags = kStart | kFlowBreakpoint,
                     .function = kHandler,
                     .to = Ip{kText + 0x800},
                     .return_to = Ip{kText + 0x100}};
const FlowStep kBack{.kind = FlowKind::jump, .flags = kFlowNamed, .function = kProbed, .from = kSlot, .to = Ip{kText + 0x105}};

// Slots at the start of their page, and in it.
TEST(ProbeCalls, AnInt3ThatLeadsToASlotEndsNoCall) {
  for (const uint8_t flags : {kStart, kFlowNamed}) {
    const FlowStep to_slot{.kind = FlowKind::far_return, .flags = flags, .function = kSlot, .landing = kInSlot, .to = Ip{kSlots}};
    EXPECT_EQ(calls_of({kTrap, to_slot, kBack}), "handler 10; slot 10; probed 40; ");
    // Without a jump at its end, an INT3 leads back.
    FlowStep second = kTrap, far_back = kBack;
    second.return_to = Ip{kSlots + 4};
    far_back.kind = FlowKind::far_return;
    EXPECT_EQ(calls_of({kTrap, to_slot, second, far_back}), "handler 10; handler 10; slot 20; probed 50; ");
  }
}

TEST(ProbeCalls, AJumpToAnOptimisedProbeEndsNoCall) {
  for (const uint8_t flags : {kStart, kFlowNamed}) {
    const FlowStep to_slot{
        .kind = FlowKind::jump, .flags = flags, .function = kSlot, .from = kProbed, .landing = kInSlot, .to = Ip{kSlots}};
    const FlowStep call{
        .kind = FlowKind::call, .flags = kStart, .function = kCallback, .to = Ip{kText + 0x900}, .return_to = Ip{kSlots + 0x50}};
    const FlowStep ret{.kind = FlowKind::ret, .flags = kFlowNamed, .function = kSlot, .to = Ip{kSlots + 0x50}};
    EXPECT_EQ(calls_of({to_slot, call, ret, kBack}), "callback 10; slot 30; probed 50; ");
  }
}

}  // namespace
}  // namespace ptd
