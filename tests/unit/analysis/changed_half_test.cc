// CallTree: a thread that is in the other half of the address space than its innermost call has returned, or was interrupted, in flow that
// was counted for another thread.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "analysis/call_flow.h"
#include "ptdecode/call_tree.h"

namespace ptd {
namespace changed_half {

constexpr uint64_t kUser = 0x401000, kKernel = 0xffffffff81000000;
constexpr uint8_t kStart = kFlowEntry | kFlowNamed;
constexpr FunctionId kMain = 0, kLoop = 1, kEntry = 2, kPoll = 3, kHandler = 4;

// Returns the instructions of each function itself. Each step has executed 10, except the first.
std::map<FunctionId, uint64_t> own_instructions(const std::vector<FlowStep>& steps) {
  CallTree tree(nullptr);
  std::vector<CallStep> out;
  uint64_t now = 1000;
  for (FlowStep step : steps) {
    step.tid = 7;
    step.time = step.floor = TimeNs{now};
    step.instructions = now == 1000 ? 0 : 10;
    now += 10;
    tree.take(step, out);
  }
  tree.finish(out, TimeNs{now});
  std::map<FunctionId, uint64_t> own;
  for (const CallStep& step : out) {
    if (step.kind == CallStepKind::leave && step.self_instructions != 0) own[step.function] += step.self_instructions;
  }
  return own;
}

const FlowStep kBegin{.kind = FlowKind::begin, .flags = kStart, .function = kMain, .to = Ip{kUser}};
const FlowStep kCallLoop{
    .kind = FlowKind::call, .flags = kStart, .function = kLoop, .from = kMain, .to = Ip{kUser + 0x100}, .return_to = Ip{kUser + 5}};
const FlowStep kSyscall{.kind = FlowKind::call,
                        .flags = kStart | kFlowFar,
                        .function = kEntry,
                        .from = kLoop,
                        .to = Ip{kKernel},
                        .return_to = Ip{kUser + 0x110}};
const FlowStep kCallPoll{
    .kind = FlowKind::call, .flags = kStart, .function = kPoll, .from = kEntry, .to = Ip{kKernel + 0x100}, .return_to = Ip{kKernel + 5}};

// The return of the system call is missing; the loop runs until an interrupt.
TEST(ChangedHalf, UserCodeIsNotThatOfAnOpenKernelCall) {
  const FlowStep interrupt{.kind = FlowKind::interrupt,
                           .flags = kStart,
                           .function = kHandler,
                           .from = kLoop,
                           .to = Ip{kKernel + 0x800},
                           .return_to = Ip{kUser + 0x120}};
  const FlowStep back{.kind = FlowKind::far_return,
                      .flags = kFlowNamed,
                      .function = kLoop,
                      .from = kHandler,
                      .to = Ip{kUser + 0x120},
                      .return_to = Ip{kKernel + 0x820}};
  const FlowStep ret{
      .kind = FlowKind::ret, .flags = kFlowNamed, .function = kMain, .from = kLoop, .to = Ip{kUser + 5}, .return_to = Ip{kUser + 0x130}};
  const std::map<FunctionId, uint64_t> want = {{kMain, 10}, {kLoop, 10 + 10 + 10}, {kEntry, 10}, {kHandler, 10}};
  EXPECT_EQ(own_instructions({kBegin, kCallLoop, kSyscall, kCallPoll, interrupt, back, ret}), want);
}

// The system call is missing.
TEST(ChangedHalf, KernelCodeIsNotThatOfAUserCall) {
  const std::map<FunctionId, uint64_t> want = {{kMain, 10}, {kEntry, 10}};
  EXPECT_EQ(own_instructions({kBegin, kCallLoop, kCallPoll}), want);
}

}  // namespace changed_half
}  // namespace ptd
