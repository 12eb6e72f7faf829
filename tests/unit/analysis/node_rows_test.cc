// write_node_rows(): the rows against the blocks that they come from, with and without the instructions that only some processors have.
#include "analysis/table/flow/node_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ptd {
namespace {

constexpr size_t kRoom = CondensedBlocks::kMostBlocks + CondensedBlocks::kRowsAtOnce;
constexpr uint32_t kEpoch = 77U << BranchNodes::kKindBits;

using Write = decltype(write_node_rows);

struct Columns {
  std::vector<Ip> ip{kRoom}, to{kRoom};
  std::vector<int32_t> symbol = std::vector<int32_t>(kRoom), to_symbol = symbol, flags = symbol;
  std::vector<uint32_t> instructions = std::vector<uint32_t>(kRoom);
  std::vector<uint8_t> nulls = std::vector<uint8_t>(kRoom / 8), to_nulls = nulls;

  bool write(Write& write, const CondensedBlocks& rows, const std::vector<Block>& blocks, const std::vector<BranchNodes::Node>& nodes) {
    return write({ip.data(), to.data(), symbol.data(), to_symbol.data(), flags.data(), instructions.data(), nulls.data(), to_nulls.data()},
                 rows, blocks.data(), nodes.data(), kEpoch);
  }
};

bool bit(const std::vector<uint8_t>& bits, size_t row) { return (bits[row / 8] >> row % 8 & 1) != 0; }

struct Piece {
  std::vector<BranchNodes::Node> nodes;
  std::vector<Block> blocks;
};

/// Blocks of 40 nodes, and one block more, which the last branch goes to.
Piece random_piece(std::mt19937& random, size_t size) {
  Piece piece;
  for (size_t i = 0; i < 40; ++i) {
    const auto end = [&] {
      const uint64_t ip = uint64_t{random()} << 32 | random();
      return BranchNodes::End{Ip{ip}, random() % 3 == 0 ? -1 : static_cast<int32_t>(random() >> 1),
                              kEpoch | static_cast<uint32_t>(random() % 200)};
    };
    piece.nodes.push_back({end(), end()});
  }
  for (size_t i = 0; i <= size; ++i) {
    piece.blocks.push_back(
        {static_cast<NodeId>(random() % 40), static_cast<uint16_t>(random()), static_cast<uint16_t>(random() % 4 != 0 ? 1 : 0)});
  }
  return piece;
}

void expect_rows(const Piece& piece, uint32_t before, Write& write) {
  const size_t size = piece.blocks.size() - 1;
  CondensedBlocks rows;
  rows.condense(std::span(piece.blocks).first(size), before);
  Columns columns;
  ASSERT_TRUE(columns.write(write, rows, piece.blocks, piece.nodes));
  uint32_t instructions = before;
  size_t row = 0;
  for (size_t i = 0; i < size; ++i) {
    instructions += piece.blocks[i].instructions;
    if (!has(piece.blocks[i].flags, BlockFlag::taken)) continue;
    const BranchNodes::End &from = piece.nodes[piece.blocks[i].node].from, &to = piece.nodes[piece.blocks[i + 1].node].to;
    EXPECT_EQ(columns.ip[row], from.ip);
    EXPECT_EQ(columns.to[row], to.ip);
    EXPECT_EQ(columns.symbol[row], std::max(from.symbol, 0));
    EXPECT_EQ(columns.to_symbol[row], std::max(to.symbol, 0));
    EXPECT_EQ(bit(columns.nulls, row), from.symbol < 0);
    EXPECT_EQ(bit(columns.to_nulls, row), to.symbol < 0);
    EXPECT_EQ(static_cast<uint32_t>(columns.flags[row]), from.tag - kEpoch);
    EXPECT_EQ(columns.instructions[row], instructions);
    instructions = 0;
    ++row;
  }
  EXPECT_EQ(row, rows.rows());
}

class NodeRows : public testing::TestWithParam<Write*> {};

TEST_P(NodeRows, pieces_of_every_length) {
  std::mt19937 random(11);
  for (size_t size = 0; size <= CondensedBlocks::kMostBlocks; ++size) {
    expect_rows(random_piece(random, size), size % 3 == 0 ? 0 : static_cast<uint32_t>(random() % 1'000'000), *GetParam());
  }
}

TEST_P(NodeRows, one_node_of_another_epoch_is_noticed) {
  std::mt19937 random(12);
  for (size_t place = 0; place < 21; ++place) {
    for (const bool target : {false, true}) {
      Piece piece = random_piece(random, 21);
      for (Block& block : piece.blocks) block = {static_cast<NodeId>(random() % 39), 1, 1};
      piece.blocks[place + (target ? 1 : 0)].node = 39;
      (target ? piece.nodes[39].to : piece.nodes[39].from).tag += 1U << BranchNodes::kKindBits;
      CondensedBlocks rows;
      rows.condense(std::span(piece.blocks).first(21), 0);
      EXPECT_FALSE(Columns().write(*GetParam(), rows, piece.blocks, piece.nodes)) << place << target;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(processors, NodeRows, testing::Values(&write_node_rows, &write_node_rows_portably));

}  // namespace
}  // namespace ptd
