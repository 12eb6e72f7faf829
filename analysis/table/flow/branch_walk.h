// BranchWalk: the branches of a walk over several streams, for tables of branches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/table/flow/branch_flow.h"
#include "analysis/table/flow/flow_walk.h"

namespace ptd {

/// Not thread-safe.
class BranchWalk {
 public:
  /// `walk` must outlive it and is used by nothing else.
  BranchWalk(FlowWalk& walk, size_t streams) : walk_(walk), flows_(streams) {}

  /// Moves to the next run with branches that are complete and wanted. False: there are no more. Errors: those of FlowWalk::next().
  [[nodiscard]] Result<bool> next() {
    while (!over_ || stream_ < flows_.size()) {
      if (stream_ < flows_.size()) {
        while ((run_ = flows_[stream_].next()) != nullptr) {
          if (run_->count == 0 || !walk_.owns(run_->segment)) continue;
          context_ = walk_.context_of(stream_, run_->context, run_->time);
          if (walk_.wants(context_)) return true;
        }
      }
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
