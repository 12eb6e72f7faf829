// BranchWalk: the branches of a walk over several streams, for tables of branches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "analysis/table/flow/branch_flow.h"
#include "analysis/table/flow/flow_walk.h"

namespace ptd {

/// Returns the next run of `flow`, of stream `stream`, with branches that are complete and wanted, and sets `context` to its context; null:
/// there is none now.
[[nodiscard]] inline const BranchRun* next_run(const FlowWalk& walk, uint32_t stream, BranchFlow& flow, RowContext& context) {
  while (const BranchRun* const run = flow.next()) {
    if (run->count == 0 || !walk.owns(run->segment)) continue;
    context = walk.context_of(stream, run->context, run->time);
    if (walk.wants(context)) return run;
  }
  return nullptr;
}

/// Not thread-safe.
class BranchWalk {
 public:
  /// `walk` must outlive it and is used by nothing else. `on_end`: called with each stream that has given its last run.
  BranchWalk(FlowWalk& walk, size_t streams, std::function<void(uint32_t stream)> on_end)
      : walk_(walk), flows_(streams), on_end_(std::move(on_end)) {
    walk_.set_past_end([this](uint32_t stream, uint64_t segment) { return flows_[stream].is_open_before(segment); });
  }
  BranchWalk(const BranchWalk&) = delete;
  BranchWalk& operator=(const BranchWalk&) = delete;

  /// Moves to the next run with branches that are complete and wanted. False: there are no more. Errors: those of FlowWalk::next().
  [[nodiscard]] Result<bool> next() {
    for (;;) {
      for (; turn_ < turns_.size(); ++turn_) {
        if ((run_ = next_run(walk_, turns_[turn_], flow(), context_)) != nullptr) return true;
        if (turn_ >= ended_) continue;
        flow() = {};
        on_end_(turns_[turn_]);
      }
      if (over_) return false;
      if (Status status = advance(); !status) return status.error();
    }
  }
  // Of the run that next() moved to; valid until it is called again.
  [[nodiscard]] BranchFlow& flow() { return flows_[turns_[turn_]]; }
  [[nodiscard]] const BranchRun& run() const { return *run_; }
  [[nodiscard]] const RowContext& context() const { return context_; }

 private:
  /// Gives the next item to its flow. Streams that have ended before it give what they have left.
  [[nodiscard]] Status advance() {
    const Result<FlowItem> item = walk_.next();
    if (!item) return item.error();
    turns_ = walk_.ended();
    ended_ = turns_.size();
    turn_ = 0;
    for (const uint32_t stream : turns_) flows_[stream].finish();
    over_ = item.value() == FlowItem::end;
    if (over_) return {};
    turns_.push_back(walk_.stream());
    flows_[walk_.stream()].take(item.value(), walk_.item());
    return {};
  }

  FlowWalk& walk_;
  std::vector<BranchFlow> flows_;  // one a stream
  std::function<void(uint32_t stream)> on_end_;
  std::vector<uint32_t> turns_;  // streams that may have runs, in order: the first ended_ have ended
  size_t turn_ = 0, ended_ = 0;
  const BranchRun* run_ = nullptr;
  RowContext context_;
  bool over_ = false;
};

}  // namespace ptd
