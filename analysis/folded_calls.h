// FoldedCalls: the calls beyond the deepest one that a stack stores, as return addresses only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/call_flow.h"
#include "analysis/frame_search.h"
#include "ptdecode/types.h"

namespace ptd {

/// Whether the kernel executes a system call again: the flow goes on at SYSCALL, SYSENTER or INT (2 bytes), or SVC (2 or 4).
constexpr bool is_restart(Ip to, Ip return_to) { return return_to - to == 2 || return_to - to == 4; }

/// A stack of return addresses. Recursion from one place takes one entry. Beyond kMostRuns entries only the number of calls is known. Not
/// thread-safe.
class FoldedCalls {
 public:
  enum class Where : uint8_t {
    begun,    ///< a call that is folded
    inside,   ///< of the folded calls
    outside,  ///< of the stored ones; none is folded any more
    unknown,  ///< a return to no open call
  };
  /// Takes a step of a thread whose stored stack is full. `due`: where its pause ends. `awaits(ip)`: a stored call returns there.
  template <class Awaits>
  Where take(const FlowStep& step, Ip due, Awaits&& awaits) {
    const bool unseen = (step.flags & kFlowUnseen) != 0;
    switch (step.kind) {
      case FlowKind::call:
      case FlowKind::interrupt:
        if (unseen) return Where::inside;  // untraced code ends where the flow is seen again
        push(step.return_to, false, step.landing);
        return Where::begun;
      case FlowKind::ret:
      case FlowKind::far_return:
        if (empty()) return Where::outside;
        if (unseen) return pop(), Where::inside;
        if (pop_to(step.to)) return Where::inside;
        if (awaits(step.to)) return clear(), Where::outside;
        return (step.flags & kFlowEntry) != 0 || in_handler() || step.kind == FlowKind::far_return ? Where::inside : Where::unknown;
      case FlowKind::jump:
        return empty() ? Where::outside : Where::inside;
      default:  // the flow goes on: where it was, in a call further out, or in the handler of a signal
        if (step.to == due || (step.flags & kFlowHalted) != 0 || is_restart(step.to, due) || pop_to(step.to)) return Where::inside;
        if (awaits(step.to)) return clear(), Where::outside;
        push(due, true);
        return Where::begun;
    }
  }
  /// `handler`: of a signal, which may return elsewhere.
  void push(Ip return_to, bool handler, int32_t landing = 0) {
    if (!runs_.empty() && unknown_ == 0 && runs_.back().return_to == return_to && runs_.back().handler == handler) {
      ++runs_.back().count;
    } else if (runs_.size() < kMostRuns && unknown_ == 0) {
      runs_.push_back({return_to, 1, handler, landing});
    } else {
      ++unknown_;
    }
  }
  /// Ends the innermost call.
  void pop() {
    if (unknown_ != 0) {
      --unknown_;
    } else if (!runs_.empty() && --runs_.back().count == 0) {
      runs_.pop_back();
    }
  }
  /// Ends the innermost call that returns to `to`, and those inside of it. False: there is none.
  bool pop_to(Ip to) {
    if (unknown_ != 0) {
      --unknown_;
      return true;
    }
    const size_t match = innermost(runs_, [to](const Run& run) { return run.return_to == to; });
    if (match == 0) return false;
    runs_.resize(match);
    pop();
    return true;
  }
  /// Ends the innermost call that an exception leaves to go on at `to`, and those inside of it. False: there is none.
  bool leave_to_landing(Ip to) {
    const size_t match = innermost(runs_, [to](const Run& run) { return lands_at(run.return_to, run.landing, to); });
    if (match == 0) return false;
    unknown_ = 0;
    runs_.resize(match);
    pop();
    return true;
  }
  [[nodiscard]] bool in_handler() const { return unknown_ == 0 && !runs_.empty() && runs_.back().handler; }
  [[nodiscard]] bool empty() const { return runs_.empty() && unknown_ == 0; }
  void clear() {
    runs_.clear();
    unknown_ = 0;
  }

  static constexpr size_t kMostRuns = 1U << 16;

 private:
  struct Run {
    Ip return_to;
    uint64_t count = 0;
    bool handler = false;
    int32_t landing = 0;  ///< FlowStep::landing
  };
  std::vector<Run> runs_;
  uint64_t unknown_ = 0;  ///< calls inside of those of runs_
};

}  // namespace ptd
