// BranchNodes: what the blocks of one stream give to the rows of the table `branches`, by their node.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/table/flow/branch_flow.h"
#include "analysis/table/flow/flow_walk.h"
#include "analysis/table/place_names.h"

namespace ptd {

/// Remembers the symbols of each block, so that a row does not search for its address. They belong to an epoch: a space, and a time in
/// which all symbols of the epoch are valid. Not thread-safe.
class BranchNodes {
 public:
  /// An end of a branch. Of 16 bytes, so that the columns of four ends are made by shuffling four vectors.
  struct alignas(16) End {
    Ip ip;
    int32_t symbol = -1;  ///< -1: none
    uint32_t tag = 0;     ///< the epoch, and in the lowest kKindBits an index into the list of kinds; 0: nothing is known yet
  };
  struct Node {
    End from, to;  ///< the branch at the end of the block; the block as a target, with the same tag
  };
  static_assert(sizeof(Node) == 32);
  static constexpr unsigned kKindBits = 8;
  struct Lists {
    PlaceNames& names;
    NameList& kinds;
  };

  /// `with_symbols`: else nodes have none.
  explicit BranchNodes(bool with_symbols) : with_symbols_(with_symbols) {}

  /// Turns to a context and returns the tag of its epoch, with the kind 0. Nodes of another epoch must be added before their values are
  /// used.
  [[nodiscard]] uint32_t enter(const RowContext& at) {
    if (with_symbols_ && (epochs_[current_].space != at.space || !epochs_[current_].valid.contains(at.time))) change(at.space, at.time);
    return epochs_[current_].id << kKindBits;
  }
  /// The nodes by their id, all of the flow's blocks. Valid until the next call.
  [[nodiscard]] const Node* nodes(const BranchFlow& flow) {
    if (nodes_.size() < flow.node_limit()) nodes_.resize(std::max(flow.node_limit(), 2 * nodes_.size()));
    return nodes_.data();
  }
  /// Adds the nodes of these blocks, of which no branch is special, in the context that enter() turned to.
  void add(const Lists& lists, BranchFlow& flow, const RowContext& at, std::span<const Block> blocks);

 private:
  struct Epoch {
    SpaceId space = kNoSpace;
    Interval valid{kTimeMax, kTimeMin};
    uint32_t id = 1;
  };
  void change(SpaceId space, TimeNs when);

  std::vector<Node> nodes_;
  std::array<Epoch, 8> epochs_;  // the last ones
  size_t current_ = 0, next_ = 0;
  uint32_t last_id_ = 1;
  bool with_symbols_;
};

}  // namespace ptd
