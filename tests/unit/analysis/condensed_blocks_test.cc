// CondensedBlocks: the taken branches of pieces of every length.
#include "analysis/table/flow/condensed_blocks.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ptd {
namespace {

void expect_rows(const std::vector<Block>& blocks, uint32_t before) {
  CondensedBlocks condensed;
  condensed.condense(blocks, before);
  size_t row = 0;
  uint32_t instructions = before;
  uint16_t flags = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    instructions += blocks[i].instructions;
    flags = static_cast<uint16_t>(flags | blocks[i].flags);
    if (!has(blocks[i].flags, BlockFlag::taken)) continue;
    ASSERT_LT(row, condensed.rows());
    EXPECT_EQ(condensed.block(row), i);
    const uint64_t* const sums = condensed.sums_before(row);
    EXPECT_EQ((sums[1] >> 32) - (sums[0] >> 32), instructions);
    instructions = 0;
    ++row;
  }
  EXPECT_EQ(condensed.rows(), row);
  EXPECT_EQ(condensed.instructions_left(), instructions);
  EXPECT_EQ(condensed.flags(), flags);
  for (size_t i = row; row != 0 && i < row + CondensedBlocks::kRowsAtOnce; ++i) EXPECT_EQ(condensed.block(i), condensed.block(row - 1));
}

TEST(CondensedBlocks, pieces_of_every_length) {
  std::mt19937 random(7);
  for (size_t size = 0; size <= CondensedBlocks::kMostBlocks; ++size) {
    for (const unsigned taken_of_8 : {0U, 1U, 4U, 8U}) {
      std::vector<Block> blocks(size);
      for (Block& block : blocks) {
        const bool taken = random() % 8 < taken_of_8;
        const unsigned other_flags = random() % 16 == 0 ? random() & 0xfffeU : 0U;
        block = {static_cast<NodeId>(random()), static_cast<uint16_t>(random()), static_cast<uint16_t>(other_flags | (taken ? 1U : 0U))};
      }
      expect_rows(blocks, size % 3 == 0 ? 0 : static_cast<uint32_t>(random() % 1'000'000));
    }
  }
}

}  // namespace
}  // namespace ptd
