// BranchRows: the branches that were taken, and where tracing starts, ends or is interrupted.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "analysis/table/column.h"
#include "analysis/table/flow_walk.h"
#include "ptdecode/flow.h"
#include "ptdecode/insn.h"

namespace ptd {

/// A row of the table `branches`.
struct BranchRow {
  RowContext at;
  Ip from, to;
  uint32_t instructions = 0;  ///< executed since the row before, up to and including the branch
  int32_t kind = -1;          ///< index into kinds
  uint16_t block_flags = 0;   ///< of the branch's block
  bool has_from = false, has_to = false;
};

/// Follows the streams of a FlowWalk. A branch is complete when it is known where it went.
class BranchRows {
 public:
  explicit BranchRows(size_t streams) : streams_(streams) {}

  /// Takes the item that `walk` has come to and appends the rows that it completes.
  void take(FlowItem item, const FlowWalk& walk, std::vector<BranchRow>& rows);
  /// The walk is over: appends the branches whose targets are not known.
  void finish(std::vector<BranchRow>& rows);

  NameList kinds;

 private:
  /// What a branch row needs of a block.
  struct Node {
    Ip ip, from;  ///< of its first and of its last instruction
    int32_t kind = -1;
    bool known = false;
  };
  struct Stream {
    std::vector<Node> nodes;
    const BlockTable* table = nullptr;
    std::optional<BranchRow> open;  ///< a taken branch whose target is not known yet
    NodeId open_node = 0;
    uint32_t instructions = 0;
    bool open_wanted = false, flowing = false;
  };

  const Node& node_of(Stream& stream, NodeId id) {
    if (id < stream.nodes.size() && stream.nodes[id].known) return stream.nodes[id];
    return add_node(stream, id);
  }
  const Node& add_node(Stream& stream, NodeId id);
  [[nodiscard]] Insn last_insn(const Stream& stream, NodeId id, Ip& ip) const;
  void take_blocks(Stream& stream, const FlowWalk& walk, std::vector<BranchRow>& rows);
  void take_event(Stream& stream, const FlowWalk& walk, std::vector<BranchRow>& rows);
  void add_event_row(Stream& stream, const FlowWalk& walk, std::string_view kind, std::vector<BranchRow>& rows);
  void close(Stream& stream, std::optional<Ip> to, bool ends_trace, std::vector<BranchRow>& rows);

  std::vector<Stream> streams_;
};

}  // namespace ptd
