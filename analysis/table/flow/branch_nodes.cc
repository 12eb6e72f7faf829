// BranchNodes: see branch_nodes.h.
#include "analysis/table/flow/branch_nodes.h"

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
  if (++last_id_ >> (32 - kKindBits) != 0) {  // all ids have been used
    for (Node& node : nodes_) node = Node{};
    epochs_.fill(Epoch{});
    last_id_ = 2;
  }
  epochs_[current_] = {space, Interval{}, last_id_};
}

void BranchNodes::add(const Lists& lists, BranchFlow& flow, const RowContext& at, std::span<const Block> blocks) {
  Epoch& epoch = epochs_[current_];
  const auto symbol_of = [&](Ip ip) {
    Interval valid;
    const int32_t symbol = lists.names.symbol(at.space, ip, at.time, valid);
    epoch.valid = intersect(epoch.valid, valid);
    return symbol;
  };
  for (const Block& block : blocks) {
    Node& node = nodes_[block.node];
    if (node.from.tag >> kKindBits == epoch.id) continue;
    const BranchFlow::Node& of_flow = flow.node(block.node);
    const auto kind = static_cast<uint32_t>(std::max(lists.kinds.index_of(flow.kind(of_flow.kind)), 0));
    const uint32_t tag = epoch.id << kKindBits | kind;
    node.from = {of_flow.from, with_symbols_ ? symbol_of(of_flow.from) : -1, tag};
    node.to = {of_flow.ip, with_symbols_ ? symbol_of(of_flow.ip) : -1, tag};
  }
}

}  // namespace ptd
