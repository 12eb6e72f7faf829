// BranchWalk: the branches of a walk over several streams, for tables of branches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/table/flow/branch_flow.h"
#include "analysis/table/flow/flow_walk.h"

namespace ptd {

/// Returns the next run of `flow`, of stream `stream`, with branches that are complete and wanted, and sets `context` to its context; null: there is none
/// now.
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
  /// `walk` must outlive it and is used by nothing else.
  BranchWalk(FlowWalk& walk, size_t streams) : walk_(walk), flows_(streams) {}

  /// Moves to the next run with branches that are complete and wanted. False: there are no more. Errors: those of FlowWalk::next().
  [[nodiscard]] Result<bool> next() {
    while (!over_ || stream_ < flows_.size()) {
      if (stream_ < flows_.size() && (run_ = next_run(walk_, stream_, flows_[stream_], context_)) != nullptr) return true;
      if (Status status = advance(); !status) return status.error();
    }
    return false;
  }
  // Of the run that next() moved to; valid until it is called again.
  [[nodiscard]] BranchFlow& flow() { return flows_[stream_]; }
  [[nodiscard]] const BranchRun& run() const { return *run_; }
  [[nodiscard]] const RowContext& context() const { return context_; }

 private:
  /// Gives the next item to its flow. At the end, each flow in turn gives what it has left.
  [[nodiscard]] Status advance() {
    if (over_) {
      ++stream_;
      return {};
    }
    const Result<FlowItem> item = walk_.next();
    if (!item) return item.error();
    over_ = item.value() == FlowItem::end;
    stream_ = over_ ? 0 : walk_.stream();
    if (!over_) {
      flows_[stream_].take(item.value(), walk_.item());
    } else {
      for (BranchFlow& flow : flows_) flow.finish();
    }
    return {};
  }

  FlowWalk& walk_;
  std::vector<BranchFlow> flows_;  // one a stream
  uint32_t stream_ = 0;
  const BranchRun* run_ = nullptr;
  RowContext context_;
  bool over_ = false;
};

}  // namespace ptd
