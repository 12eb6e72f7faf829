// FoldedCalls: the calls beyond the deepest one that a stack stores, as return addresses and functions only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/call_flow.h"
#include "analysis/frame_search.h"
#include "image/left_calls.h"
#include "ptdecode/types.h"

namespace ptd {

/// A stack of return addresses and functions. Recursion from one place takes one entry. Beyond kMostRuns entries only the number of calls
/// is known. Not thread-safe.
class FoldedCalls {
 public:
  enum class Where : uint8_t {
    begun,    ///< a call that is folded
    inside,   ///< of the folded calls
    outside,  ///< of the stored ones; none is folded any more
    unknown,  ///< a return to no open call
  };
  /// Takes a step of a thread whose stored stack is full. `due`: where its pause ends. `stored`: the stored calls, as
  /// CallTree::State::StoredCalls.
  template <class Stored>
  Where take(const FlowStep& step, Ip due, Stored& stored) {
    const bool unseen = (step.flags & kFlowUnseen) != 0;
    switch (step.kind) {
      case FlowKind::call:
      case FlowKind::interrupt:
        if (unseen) return Where::inside;  // untraced code ends where the flow is seen again
        push({step.return_to, 1, step.function, false, std::max(step.landing, kEntersSetjmp)});
        if (step.landing == kEntersSetjmp) save_place();
        return Where::begun;
      case FlowKind::ret:
      case FlowKind::far_return: {
        if (empty()) return Where::outside;
        const bool user_far = step.kind == FlowKind::far_return && stays_in_user_code(step.return_to, step.to);
        if (unseen) return user_far ? void() : pop(), Where::inside;
        if (pop_to(step.to)) return Where::inside;
        if (stored.awaits(step.to)) return clear(), Where::outside;
        if (user_far) return jump(step, stored);
        if ((step.flags & kFlowEntry) != 0 || in_handler() || step.kind == FlowKind::far_return) return Where::inside;
        return go_on(step, stored, Where::unknown);
      }
      case FlowKind::jump:
        return empty() ? Where::outside : jump(step, stored);
      default:  // the flow goes on: where it was, in a call further out, or in the handler of a signal
        if (step.to == due || (step.flags & kFlowHalted) != 0 || is_restart(step.to, due) || pop_to(step.to)) return Where::inside;
        if (stored.awaits(step.to)) return clear(), Where::outside;
        push({due, 1, step.function, true, 0});
        return Where::begun;
    }
  }
  /// Ends the innermost call that an exception leaves to go on at `to`, and those inside of it. False: there is none.
  bool leave_to_landing(Ip to) {
    if (!leave_to([to](const Run& run) { return lands_at(run.return_to, run.landing, to); })) return false;
    pop();
    return true;
  }
  [[nodiscard]] bool empty() const { return runs_.empty() && unknown_ == 0; }
  void clear() {
    runs_.clear();
    unknown_ = 0;
    set_depth(0);
  }
  /// Returns the return address of the folded call if there is one only, else 0.
  [[nodiscard]] Ip only_return() const { return depth_ == 1 && unknown_ == 0 ? runs_.back().return_to : Ip{}; }

  static constexpr size_t kMostRuns = 1U << 16;

 private:
  struct Run {
    Ip return_to;
    uint64_t count = 0;
    FunctionId function = kNoFunction;
    bool handler = false;  ///< of a signal, which may return elsewhere
    int32_t landing = 0;   ///< FlowStep::landing
  };
  [[nodiscard]] bool in_handler() const { return unknown_ == 0 && !runs_.empty() && runs_.back().handler; }
  /// The innermost of the first `depth` calls has called setjmp, which returns to `place`.
  struct Saved {
    uint64_t depth = 0;
    Ip place;
  };
  void push(const Run& run) {
    const auto is_same = [&run](const Run& last) {
      return last.return_to == run.return_to && last.function == run.function && last.handler == run.handler;
    };
    if (unknown_ != 0 || (runs_.size() >= kMostRuns && !is_same(runs_.back()))) {
      ++unknown_;
      return;
    }
    ++depth_;
    if (!runs_.empty() && is_same(runs_.back())) {
      ++runs_.back().count;
    } else {
      runs_.push_back(run);
    }
  }
  /// Ends the innermost call.
  void pop() {
    if (unknown_ != 0) {
      --unknown_;
      return;
    }
    if (runs_.empty()) return;
    if (--runs_.back().count == 0) runs_.pop_back();
    set_depth(depth_ - 1);
  }
  void set_depth(uint64_t depth) {
    depth_ = depth;
    while (!saved_.empty() && saved_.back().depth > depth) saved_.pop_back();
  }
  /// Ends the innermost call that returns to `to`, and those inside of it. False: there is none.
  bool pop_to(Ip to) {
    if (unknown_ == 0 && !leave_to([to](const Run& run) { return run.return_to == to; })) return false;
    pop();
    return true;
  }
  /// Ends the calls inside of the innermost one that fits. False: none does.
  template <class Fits>
  bool leave_to(Fits fits) {
    const size_t match = search_.innermost(runs_, fits);
    if (match == 0) return false;
    uint64_t left = 0;
    for (size_t i = match; i < runs_.size(); ++i) left += runs_[i].count;
    leave_to_depth(depth_ - left);
    return true;
  }
  void leave_to_depth(uint64_t depth) {
    unknown_ = 0;
    for (uint64_t left = depth_ - depth; left != 0;) {
      const uint64_t count = std::min(left, runs_.back().count);
      left -= count;
      if ((runs_.back().count -= count) == 0) runs_.pop_back();
    }
    set_depth(depth);
  }
  template <class Stored>
  Where jump(const FlowStep& step, Stored& stored) {
    if ((step.flags & kFlowEntry) == 0) return go_on(step, stored, Where::inside);
    replace(step);
    return Where::inside;
  }
  /// A jump to the start of another function.
  void replace(const FlowStep& step) {
    if (unknown_ != 0 || (step.flags & kFlowNamed) == 0) return;
    Run run = runs_.back();
    run.count = 1;
    run.function = step.function;
    pop();
    push(run);
    if (step.landing == kEntersSetjmp) save_place();
  }
  /// setjmp is the innermost call. What the stored calls save is not kept here.
  void save_place() {
    if (unknown_ != 0 || depth_ < 2 || saved_.size() >= kMostRuns) return;
    const Saved made{depth_ - 1, runs_.back().return_to};
    if (saved_.empty() || saved_.back().depth != made.depth || saved_.back().place != made.place) saved_.push_back(made);
  }
  /// The flow goes on inside of a function, as after longjmp. `otherwise`: none of the open calls explains it.
  template <class Stored>
  Where go_on(const FlowStep& step, Stored& stored, Where otherwise) {
    const bool known = unknown_ == 0;
    if ((step.flags & kFlowNamed) == 0) return otherwise;
    if (known && runs_.back().function == step.function) return Where::inside;
    const size_t saved = search_.innermost(saved_, [&](const Saved& each) { return each.place == step.to; });
    if (saved != 0) return leave_to_depth(saved_[saved - 1].depth), Where::inside;
    if (stored.saved(step.to, step.function)) return clear(), Where::outside;
    if (!known) return otherwise;
    const auto fits = [&](const Run& run) { return run.function == step.function; };
    if (leave_to(fits)) {
      const auto outer = std::span(runs_).first(runs_.size() - 1);
      if (runs_.back().count > 1 || stored.is_open(step.function) || search_.look(outer, fits) != 0) stored.guess();
      return Where::inside;
    }
    if (stored.runs(step.function)) return clear(), Where::outside;
    if (otherwise == Where::inside) replace(step);
    return otherwise;
  }

  std::vector<Run> runs_;
  uint64_t depth_ = 0;        ///< calls in runs_
  uint64_t unknown_ = 0;      ///< calls inside of those of runs_
  std::vector<Saved> saved_;  ///< by depth
  BoundedSearch search_;
};

}  // namespace ptd
