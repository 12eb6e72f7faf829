// The columns of the table `branches` that the nodes of blocks give.
#pragma once

#include <cstdint>

#include "analysis/table/flow/branch_nodes.h"
#include "analysis/table/flow/condensed_blocks.h"
#include "ptdecode/flow.h"

namespace ptd {

/// The arrays that take the next rows. Each has room for CondensedBlocks::kRowsAtOnce - 1 rows more.
struct NodeColumns {
  Ip *ip, *to;
  int32_t *symbol, *to_symbol;  ///< 0: none
  int32_t* flags;
  uint32_t* instructions;
  uint8_t *nulls, *to_nulls;  ///< a bit for each row without a symbol
};

/// Writes `rows`, and a few rows after them with any values. `blocks`: of the piece. False if a node is of another epoch than `epoch`: then
/// it must be called again after BranchNodes::add().
[[nodiscard]] bool write_node_rows(const NodeColumns& columns, const CondensedBlocks& rows, const Block* blocks,
                                   const BranchNodes::Node* nodes, uint32_t epoch);
/// Same, without the instructions that only some processors have.
[[nodiscard]] bool write_node_rows_portably(const NodeColumns& columns, const CondensedBlocks& rows, const Block* blocks,
                                            const BranchNodes::Node* nodes, uint32_t epoch);

}  // namespace ptd
