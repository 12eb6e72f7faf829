// BranchNodes: see branch_nodes.h.
#include "analysis/table/branch_nodes.h"

#include <algorithm>

namespace ptd {

/// Finds the epoch of this space and time, or begins one.
void BranchNodes::change(SpaceId space, TimeNs when) {
  const auto fits = [&](const Epoch& epoch) { return epoch.space == space && epoch.valid.contains(when); };
  if (const auto* known = std::find_if(epochs_.begin(), epochs_.end(), fits); known != epochs_.end()) {
    current_ = static_cast<size_t>(known - epochs_.begin());
    return;
  }
  current_ = next_;
  next_ = (next_ + 1) % epochs_.size();
  if (++last_id_ == 0) {  // all ids have been used
    for (Node& node : nodes_) node.epoch = 0;
    epochs_.fill(Epoch{});
    last_id_ = 2;
  }
  epochs_[current_] = {space, Interval{}, last_id_};
}

void BranchNodes::add(const Lists& lists, BranchFlow& flow, const RowContext& at, std::span<const FlowBranch> branches) {
  Epoch& epoch = epochs_[current_];
  const auto symbol_of = [&](Ip ip) {
    Interval valid;
    const int32_t symbol = lists.names.symbol(at.space, ip, at.time, valid);
    epoch.valid = intersect(epoch.valid, valid);
    return symbol;
  };
  const auto add_node = [&](NodeId id) {
    Node& node = nodes_[id];
    if (node.epoch == epoch.id) return;
    if (node.epoch == 0) {
      const BranchFlow::Node& of_flow = flow.node(id);
      node.from = of_flow.from, node.ip = of_flow.ip;
      node.kind = std::max(lists.kinds.index_of(flow.kind(of_flow.kind)), 0);
    }
    if (with_symbols_) {
      node.from_symbol = symbol_of(node.from);
      node.symbol = symbol_of(node.ip);
    }
    node.epoch = epoch.id;
  };
  for (const FlowBranch& branch : branches) {
    add_node(branch.block.node);
    add_node(branch.to_node);
  }
}

}  // namespace ptd
