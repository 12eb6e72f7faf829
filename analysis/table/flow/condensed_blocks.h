// CondensedBlocks: which blocks of a piece of flow end in a taken branch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ptdecode/flow.h"

namespace ptd {

/// The taken branches of up to kMostBlocks blocks, one row each. Not thread-safe.
class CondensedBlocks {
 public:
  static constexpr size_t kMostBlocks = 512;  ///< their rows stay in the L1 cache
  static constexpr size_t kRowsAtOnce = 8;    ///< rows after the last one that repeat it, so that a loop may read rows in groups

  /// Replaces the rows by those of `blocks`, none of which is special. `instructions`: since the last branch before them.
  void condense(std::span<const Block> blocks, uint32_t instructions);

  [[nodiscard]] size_t rows() const { return rows_; }
  /// Instructions after the last branch.
  [[nodiscard]] uint32_t instructions_left() const { return instructions_left_; }
  /// The union of the flags of all blocks.
  [[nodiscard]] uint16_t flags() const { return flags_; }
  /// The index of the block that ends in the branch of a row.
  [[nodiscard]] size_t block(size_t row) const { return branches_[kFirst + row] & 0xffffffff; }
  /// Of `row` - 1 and of the rows after it: in the upper half the instructions up to the branch; `row` - 1 may be no row.
  [[nodiscard]] const uint64_t* sums_before(size_t row) const { return branches_.data() + kFirst - 1 + row; }

 private:
  static constexpr size_t kFirst = 1;

  size_t rows_ = 0;
  uint32_t instructions_left_ = 0;
  uint16_t flags_ = 0;
  /// Of each branch: in the lower half the index of its block, in the upper one the instructions up to it. The first one is no branch.
  std::array<uint64_t, kFirst + kMostBlocks + kRowsAtOnce> branches_;
};

}  // namespace ptd
