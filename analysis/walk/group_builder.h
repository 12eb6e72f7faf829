// GroupBuilder: follows the calls that begin and end within a unit, so that a merge reads only what is open at its ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/base/open_counts.h"
#include "analysis/call_flow.h"
#include "analysis/frame_search.h"
#include "image/left_calls.h"
#include "ptdecode/call_tree.h"
#include "ptdecode/function_profile.h"

namespace ptd {

/// A call that ends in the group in which it begins. Its depth counts from the calls of the group that are in no other.
struct FinishedCall {
  CallStep step;
  int32_t pid = -1, tid = -1;
  uint32_t group = 0;  ///< CallGroup::number
};

/// Fed with the steps of one stream. Calls that return, with all steps in between, become groups; the other steps stay.
///
///     call a | call b | ret b | call c | call d | ret d | switch_out
///     call a | (group: b)      | call c | (group: d)     | switch_out
///
/// Invariant: a group is taken by CallTree with the same result as its steps, if CallTree::accepts() it. So a step is in a group only if
/// what CallTree does with it depends on nothing outside. All others stay as they are: returns to calls from before, gaps, pauses,
/// switches, unseen and uncertain branches, setjmp and longjmp. At most kMostSteps steps wait for their group. Not thread-safe.
class GroupBuilder {
 public:
  static constexpr uint64_t kMostSteps = kMostGroupSteps;
  GroupBuilder() { clear_pending(); }

  void take(const FlowStep& step);
  /// Ends all groups.
  void flush();
  /// What came since it was last cleared: steps and groups in order, and the calls of the groups.
  StepItems items;
  std::vector<FinishedCall> calls;
  /// Returns the totals of the calls of all groups. A call in another one of its function in the same group counts as inner.
  [[nodiscard]] const FunctionProfile& totals() const { return totals_; }
  /// Expects the steps of one group up to each flush(): they begin where a step has been seen, and make one group.
  void expect_group() { in_context_ = one_group_ = true; }
  /// `calls` stays empty.
  void drop_calls() { drops_calls_ = true; }

 private:
  struct Frame {
    FunctionId function = kNoFunction;
    FrameKind kind = FrameKind::call;
    bool by_jump = false;
    uint8_t flags = 0;
    int32_t landing = 0;  ///< FlowStep::landing
    Ip return_to;
    TimeNs start, floor;
    uint64_t instructions = 0, cycles = 0;  ///< all before it
    uint64_t self_ns = 0, self_instructions = 0, self_cycles = 0;
    size_t entry = 0;  ///< the first of entries_ that it, or a function that it replaced, is from
  };
  /// Steps in a row that leave the frames as they were.
  struct Run {
    TimeNs first, last;
    uint64_t outer_ns = 0, outer_instructions = 0, outer_cycles = 0;
    uint64_t first_step = 0, steps = 0;
    uint32_t depth = 0;
  };
  /// A step that entered or replaced a frame which is still there, and the steps after it. The first entry has no step.
  struct Entry {
    FlowStep step;
    uint64_t number = 0;
    size_t level = 0;       ///< frames after it
    size_t first_call = 0;  ///< of pending_, ended after it
    bool replaces = false;  ///< the call before first_call ended with it
    Run after;
  };
  [[nodiscard]] bool same_context(const FlowStep& step) const {
    return step.tid == context_.tid && step.pid == context_.pid && step.space == context_.space && step.cpu == context_.cpu;
  }
  bool take_inside(const FlowStep& step);
  bool take_jump(const FlowStep& step);
  bool take_landing(const FlowStep& step);
  void spend(const FlowStep& step);
  void enter(const FlowStep& step, FrameKind kind, uint8_t flags);
  void replace(const FlowStep& step);
  Frame& push(const FlowStep& step);
  void absorb(const FlowStep& step);
  void leave_to(size_t depth, const FlowStep& step);
  void leave(const FlowStep& step);
  void extend(Run& run, const Entry& first);
  void put_group(const Entry& entry, size_t end_call);
  void clear_pending();

  FlowStep context_;         ///< the last step
  bool in_context_ = false;  ///< a step with this context has stayed
  bool one_group_ = false, drops_calls_ = false;
  bool user_ = false;  ///< a step with this context may have gone to a user address
  std::vector<Frame> frames_;
  BoundedSearch search_;
  std::vector<Entry> entries_;
  std::vector<FinishedCall> pending_;  ///< calls that ended, of groups that have not
  uint64_t next_step_ = 0, flushed_at_ = 0;
  uint64_t instructions_ = 0, cycles_ = 0;
  uint32_t groups_ = 0;
  OpenCounts open_;
  std::vector<size_t> function_at_;  ///< by function: 1 + index into items.functions, of the group that is being made
  std::vector<CallStep> steps_;
  FunctionProfile totals_;
};

}  // namespace ptd
