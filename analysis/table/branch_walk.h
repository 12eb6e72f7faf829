// BranchWalk: the branches of a walk over several streams, for tables of branches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/table/branch_flow.h"
#include "analysis/table/flow_walk.h"

namespace ptd {

class BranchWalk {
 public:
  explicit BranchWalk(size_t streams) : flows_(streams) {}
  [[nodiscard]] const BranchFlow& flow(uint32_t stream) const { return flows_[stream].branches; }
  [[nodiscard]] size_t streams() const { return flows_.size(); }
  /// Takes an item, which may be the end, and calls add(flow, context, branches) with branches that are complete and wanted.
  template <typename Add>
  void take(FlowItem item, const FlowWalk& walk, const Add& add) {
    if (item != FlowItem::end) {
      Flow& flow = flows_[walk.stream()];
      flow.stream = walk.stream();
      flow.branches.take(item, walk.item());
      return give(flow, walk, add);
    }
    for (Flow& flow : flows_) {
      flow.branches.finish();
      give(flow, walk, add);
    }
  }

 private:
  struct Flow {
    uint32_t stream = 0;
    BranchFlow branches;
  };
  template <typename Add>
  void give(Flow& flow, const FlowWalk& walk, const Add& add) {
    while (const BranchRun* run = flow.branches.next()) {
      if (run->count == 0) continue;
      const RowContext context = walk.context_of(flow.stream, run->context, run->time);
      if (walk.wants(context)) add(flow.branches, context, flow.branches.branches(*run));
    }
  }
  std::vector<Flow> flows_;
};

}  // namespace ptd
