// NodeCache: the instructions of each block, decoded once per block table.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cli/text/output.h"
#include "ptdecode/flow.h"
#include "ptdecode/insn.h"

namespace ptd::cli {

/// One instruction of a block.
struct CachedInsn {
  uint32_t offset_bytes = 0;  ///< from the block's ip
  uint8_t length_bytes = 0;
  InsnClass cls = InsnClass::other;
  InsnDetail detail = InsnDetail::none;
  int64_t displacement = 0;
};

/// Filled lazily; belongs to one BlockTable at a time: bind() empties it when given another.
class NodeCache {
 public:
  struct Node {
    uint32_t first = 0;  ///< index of its first CachedInsn
    uint32_t count = 0;  ///< 0: not filled yet
    uint64_t text = 0;   ///< offset of its ip text + 1, 0: not made yet
    uint32_t text_size = 0;
  };

  void bind(const BlockTable& table);
  /// Instructions of the block, in order; at least one for a block that a decoder made.
  std::span<const CachedInsn> insns(NodeId id) {
    const Node& node = id < nodes_.size() && nodes_[id].count != 0 ? nodes_[id] : fill(id);
    return {insns_.data() + node.first, node.count};
  }
  /// "<hex ip>\n" of every instruction.
  std::string_view ip_lines(NodeId id) {
    if (id >= nodes_.size() || nodes_[id].text == 0) fill_text(id);
    return texts_.view().substr(nodes_[id].text - 1, nodes_[id].text_size);
  }
  [[nodiscard]] const BlockInfo& info(NodeId id) const { return table_->info(id); }
  [[nodiscard]] Bytes bytes(NodeId id) const { return table_->bytes(id); }

 private:
  const Node& fill(NodeId id);
  void fill_text(NodeId id);
  const BlockTable* table_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<CachedInsn> insns_;
  TextBuffer texts_;
};

}  // namespace ptd::cli
