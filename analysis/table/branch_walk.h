// BranchWalk: the branches of a walk over several streams, for tables of branches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/table/branch_flow.h"
#include "analysis/table/column.h"
#include "analysis/table/flow_walk.h"

namespace ptd {

/// Kinds of branches as indexes into a list of names. The names are static, so that one is known by its address.
class KindNames {
 public:
  int32_t index_of(const char* kind) {
    const auto address = reinterpret_cast<uintptr_t>(kind);
    Known& known = known_[(address * 0x9E3779B97F4A7C15ULL) >> (64 - kBits)];
    if (known.kind != kind) known = {kind, names.index_of(kind)};
    return known.index;
  }
  NameList names;

 private:
  static constexpr unsigned kBits = 6;
  struct Known {
    const char* kind = nullptr;
    int32_t index = -1;
  };
  std::array<Known, size_t{1} << kBits> known_;
};

class BranchWalk {
 public:
  explicit BranchWalk(size_t streams) : flows_(streams) {}
  [[nodiscard]] size_t streams() const { return flows_.size(); }
  /// Takes an item, which may be the end, and calls add(context, branches) with branches that are complete and wanted.
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
      if (walk.wants(context)) add(context, flow.branches.branches(*run));
    }
  }
  std::vector<Flow> flows_;
};

}  // namespace ptd
