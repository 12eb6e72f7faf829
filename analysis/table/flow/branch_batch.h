// BranchBatch: the columns of a batch of the table `branches`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/table/flow/branch_nodes.h"
#include "analysis/table/flow/condensed_blocks.h"
#include "analysis/table/flow/flow_walk.h"
#include "analysis/table/flow/node_rows.h"
#include "analysis/table/place_names.h"
#include "analysis/table/row_table.h"

namespace ptd {

enum class BranchColumn : uint8_t {
  time_ns,
  stream,
  cpu,
  pid,
  tid,
  space,
  comm,
  flags,
  ip,
  symbol,
  offset,
  module,
  to,
  to_symbol,
  to_offset,
  to_module,
  instructions,
  marks
};
/// In the order of BranchColumn.
inline constexpr std::array<ColumnChoice, 18> kBranchColumns = {{
    {{"time_ns", ColumnType::int64, true}},
    {{"stream", ColumnType::uint32, false}, false},
    {{"cpu", ColumnType::int32, true}},
    {{"pid", ColumnType::int32, true}},
    {{"tid", ColumnType::int32, true}},
    {{"space", ColumnType::uint32, false}, false},
    {{"comm", ColumnType::name, true}, false},
    {{"flags", ColumnType::name, true}},
    {{"ip", ColumnType::uint64, true}},
    {{"symbol", ColumnType::name, true}},
    {{"offset", ColumnType::uint64, true}, false},
    {{"module", ColumnType::name, true}, false},
    {{"to", ColumnType::uint64, true}},
    {{"to_symbol", ColumnType::name, true}},
    {{"to_offset", ColumnType::uint64, true}, false},
    {{"to_module", ColumnType::name, true}, false},
    {{"instructions", ColumnType::uint32, false}},
    {{"marks", ColumnType::name, true}},
}};

/// Blocks of a run, one after the other. If the last one is a branch and not special, the block that it goes to follows in memory.
struct BranchBlocks {
  std::span<const Block> blocks;
  uint32_t instructions = 0;  ///< between the last branch and the first block
};

/// Writes rows to the wanted columns, without an array of rows in between. Columns with one value for all rows of a context are written
/// when the batch is complete. Not thread-safe.
class BranchBatch {
 public:
  /// `chosen`: indexes of BranchColumn. `names` must outlive it.
  BranchBatch(PlaceNames& names, const std::vector<size_t>& chosen, size_t most_rows);

  [[nodiscard]] std::vector<ColumnInfo> columns() const;
  /// Whether a column needs BranchNodes::Node::from_symbol or symbol.
  [[nodiscard]] bool with_symbols() const;

  void begin();
  [[nodiscard]] bool full() const { return rows_ == most_rows_; }
  /// The next rows have this context.
  void begin_rows(const RowContext& at) { groups_.push_back({at, rows_}); }
  /// Adds the branches of the first `count` blocks, none of which is special, and removes these blocks; only so many as the batch can hold.
  void add(const RowContext& at, BranchBlocks& left, size_t count, BranchFlow& flow, BranchNodes& nodes);
  /// Adds the special branch of the first block, which it removes.
  void add_special(const RowContext& at, BranchBlocks& left, const BranchEnds& ends, const char* kind);
  /// Invalidates nothing but the rows: begin() starts the next batch.
  [[nodiscard]] RowBatch finish();

 private:
  static constexpr size_t kRowsAtOnce = CondensedBlocks::kRowsAtOnce, kPiece = CondensedBlocks::kMostBlocks;

  struct Output {
    BranchColumn id{};
    std::byte* values = nullptr;  // of the batch
    std::vector<size_t> nulls{};  // rows; of addresses and offsets
    SameValues same{};
  };
  /// Rows in one context.
  struct Group {
    RowContext at;
    size_t end = 0;       // index of the row after the last one
    bool marked = false;  // MarkNames::any() is true for a block of theirs
  };
  template <typename T>
  [[nodiscard]] T* next_of(const Output& out) const {
    return reinterpret_cast<T*>(out.values) + rows_;
  }
  template <typename T>
  [[nodiscard]] T* next_of(BranchColumn id);
  [[nodiscard]] bool has(BranchColumn id) const { return output_of_[static_cast<size_t>(id)] != nullptr; }
  [[nodiscard]] Column& column_of(BranchColumn id) {
    return batch_.columns[static_cast<size_t>(output_of_[static_cast<size_t>(id)] - outputs_.data())];
  }
  void reserve(size_t rows);
  void mark_rows(uint16_t block_flags);
  void add_piece(const RowContext& at, const BranchBlocks& piece, BranchFlow& flow, BranchNodes& nodes);
  [[nodiscard]] NodeColumns node_columns();
  void begin_symbols();
  void fill_rare(Output& out, const RowContext& at, const Block* blocks, const BranchNodes::Node* nodes);
  void fill_special(Output& out, const RowContext& at, const FlowBranch& row, const BranchEnds& ends, int32_t kind);
  void put_place(Output& out, size_t index, const PlaceName& place);
  void finish(Output& out, Column& column);
  template <typename T, typename Get>
  void finish_context(Output& out, Column& column, const Get& get);
  void finish_comm(Output& out, Column& column);
  void finish_marks(Output& out, Column& column);

  PlaceNames& names_;
  NameList kinds_;
  MarkNames marks_;
  std::vector<Output> outputs_;
  std::vector<Output*> row_outputs_;   // one for each column in which rows of one context may differ
  std::vector<Output*> rare_outputs_;  // of these, the ones that fill_rare() writes
  std::array<Output*, kBranchColumns.size()> output_of_{};
  CondensedBlocks condensed_;                                   // of a piece of a run
  std::array<uint8_t, kPiece / kRowsAtOnce> nulls_, to_nulls_;  // a bit for each of its rows without a symbol
  std::array<uint64_t, kPiece + kRowsAtOnce> unwanted_;         // takes the values of columns that are not wanted
  std::vector<Group> groups_;
  bool has_symbols_ = true;  // else all symbols of the batch are null, and not written
  RowBatch batch_;
  size_t most_rows_ = 0, rows_ = 0, capacity_ = 0;
  size_t last_rows_ = 0;  // of the batch before
};

}  // namespace ptd
