// BranchBatch: see branch_batch.h.
#include "analysis/table/flow/branch_batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ptd {

namespace {

constexpr size_t kMostRows = size_t{1} << 25;  // of a batch: 256 MB of addresses
constexpr size_t kLeastCapacity = 1024;

[[nodiscard]] constexpr size_t width_of(ColumnType type) { return type == ColumnType::int64 || type == ColumnType::uint64 ? 8 : 4; }
[[nodiscard]] ColumnInfo info_of(BranchColumn id) { return kBranchColumns[static_cast<size_t>(id)].info; }
/// Whether all rows of a context have the same value.
[[nodiscard]] bool is_of_context(BranchColumn id) { return id <= BranchColumn::comm; }
[[nodiscard]] bool is_symbol(BranchColumn id) { return id == BranchColumn::symbol || id == BranchColumn::to_symbol; }
/// Whether finish() writes the values.
[[nodiscard]] bool is_written_late(BranchColumn id) { return is_of_context(id) && id != BranchColumn::comm; }

/// Whether the nodes of a row give the value, with write_node_rows().
[[nodiscard]] bool is_of_node(BranchColumn id) {
  constexpr std::array kColumns = {BranchColumn::flags, BranchColumn::ip,        BranchColumn::symbol,
                                   BranchColumn::to,    BranchColumn::to_symbol, BranchColumn::instructions};
  return std::find(kColumns.begin(), kColumns.end(), id) != kColumns.end();
}

/// How many of these blocks have so many branches, or all blocks if they have fewer.
[[nodiscard]] size_t blocks_of(std::span<const Block> blocks, size_t branches) {
  size_t count = 0;
  while (count < blocks.size() && branches != 0) branches -= has(blocks[count++].flags, BlockFlag::taken) ? 1 : 0;
  return count;
}

/// A value of all rows of a context.
template <typename T>
struct ContextValue {
  T value{};
  bool valid = false;
  friend bool operator==(const ContextValue&, const ContextValue&) = default;
};

}  // namespace

BranchBatch::BranchBatch(PlaceNames& names, const std::vector<size_t>& chosen, size_t most_rows)
    : names_(names), most_rows_(std::clamp<size_t>(most_rows, 1, kMostRows)) {
  for (const size_t index : chosen) outputs_.push_back({.id = static_cast<BranchColumn>(index)});
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& out = outputs_[i];
    Output*& first = output_of_[static_cast<size_t>(out.id)];
    if (first == nullptr) first = &out;
    if (first != &out || is_of_context(out.id)) continue;
    row_outputs_.push_back(&out);
    if (!is_of_node(out.id)) rare_outputs_.push_back(&out);
  }
}

std::vector<ColumnInfo> BranchBatch::columns() const {
  std::vector<ColumnInfo> infos;
  for (const Output& out : outputs_) infos.push_back(info_of(out.id));
  return infos;
}

bool BranchBatch::with_symbols() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [](const Output& out) { return is_symbol(out.id); });
}

void BranchBatch::begin() {
  batch_ = RowBatch{};
  groups_.clear();
  rows_ = capacity_ = 0;
  has_symbols_ = !names_.symbols.empty();
  for (Output& out : outputs_) {
    batch_.columns.emplace_back(info_of(out.id));
    out.nulls.clear();
  }
  reserve(std::min(most_rows_, std::max(last_rows_, kLeastCapacity)));
}

/// Makes the columns that are written before finish() at least so long, and longer by the rows that write_node_rows() writes after the last
/// one.
void BranchBatch::reserve(size_t rows) {
  if (rows + kRowsAtOnce <= capacity_) return;
  const size_t larger = std::min(most_rows_, std::max(rows, 2 * capacity_)) + kRowsAtOnce;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (is_written_late(outputs_[i].id) || &outputs_[i] != output_of_[static_cast<size_t>(outputs_[i].id)]) continue;
    Column& column = batch_.columns[i];
    if (width_of(column.info().type) == 8) {
      outputs_[i].values = reinterpret_cast<std::byte*>(column.append<uint64_t>(larger - capacity_) - capacity_);
    } else {
      outputs_[i].values = reinterpret_cast<std::byte*>(column.append<uint32_t>(larger - capacity_) - capacity_);
    }
  }
  capacity_ = larger;
}

/// The rows that are added next come from blocks of which some have these flags.
void BranchBatch::mark_rows(uint16_t block_flags) {
  if (!MarkNames::any(block_flags) || groups_.back().marked) return;
  const size_t first = groups_.size() > 1 ? groups_[groups_.size() - 2].end : 0;
  if (rows_ != first) groups_.push_back(groups_.back());
  groups_.back().marked = true;
}

void BranchBatch::add(const RowContext& at, BranchBlocks& left, size_t count, BranchFlow& flow, BranchNodes& nodes) {
  while (count != 0 && !full()) {
    const size_t rows_left = most_rows_ - rows_;
    size_t blocks = std::min(count, kPiece);
    if (rows_left < blocks) blocks = blocks_of(left.blocks.first(blocks), rows_left);
    add_piece(at, {left.blocks.first(blocks), left.instructions}, flow, nodes);
    left = {left.blocks.subspan(blocks), condensed_.instructions_left()};
    count -= blocks;
  }
}

void BranchBatch::add_piece(const RowContext& at, const BranchBlocks& piece, BranchFlow& flow, BranchNodes& nodes) {
  const Block* const blocks = piece.blocks.data();
  condensed_.condense(piece.blocks, piece.instructions);
  if (condensed_.rows() == 0) return;
  reserve(rows_ + condensed_.rows());
  mark_rows(condensed_.flags());
  const uint32_t epoch = nodes.enter(at);
  if (!write_node_rows(node_columns(), condensed_, blocks, nodes.nodes(flow), epoch)) {
    for (size_t i = 0; i < condensed_.rows(); ++i) nodes.add({names_, kinds_}, flow, at, {blocks + condensed_.block(i), 2});
    if (!has_symbols_ && !names_.symbols.empty()) begin_symbols();
    (void)write_node_rows(node_columns(), condensed_, blocks, nodes.nodes(flow), epoch);
  }
  if (has_symbols_ && has(BranchColumn::symbol)) column_of(BranchColumn::symbol).add_rows_but(nulls_, condensed_.rows());
  if (has_symbols_ && has(BranchColumn::to_symbol)) column_of(BranchColumn::to_symbol).add_rows_but(to_nulls_, condensed_.rows());
  for (Output* out : rare_outputs_) fill_rare(*out, at, blocks, nodes.nodes(flow));
  rows_ += condensed_.rows();
  groups_.back().end = rows_;
}

/// Where the values of a column go on.
template <typename T>
T* BranchBatch::next_of(BranchColumn id) {
  return has(id) && (has_symbols_ || !is_symbol(id)) ? next_of<T>(*output_of_[static_cast<size_t>(id)])
                                                     : reinterpret_cast<T*>(unwanted_.data());
}

NodeColumns BranchBatch::node_columns() {
  return {.ip = next_of<Ip>(BranchColumn::ip),
          .to = next_of<Ip>(BranchColumn::to),
          .symbol = next_of<int32_t>(BranchColumn::symbol),
          .to_symbol = next_of<int32_t>(BranchColumn::to_symbol),
          .flags = next_of<int32_t>(BranchColumn::flags),
          .instructions = next_of<uint32_t>(BranchColumn::instructions),
          .nulls = nulls_.data(),
          .to_nulls = to_nulls_.data()};
}

/// The first symbol is found: the rows so far have none.
void BranchBatch::begin_symbols() {
  has_symbols_ = true;
  for (const BranchColumn id : {BranchColumn::symbol, BranchColumn::to_symbol}) {
    if (!has(id)) continue;
    std::memset(output_of_[static_cast<size_t>(id)]->values, 0, rows_ * sizeof(int32_t));
    column_of(id).add_rows(rows_, false);
  }
}

void BranchBatch::fill_rare(Output& out, const RowContext& at, const Block* blocks, const BranchNodes::Node* nodes) {
  const bool is_to = out.id == BranchColumn::to_offset || out.id == BranchColumn::to_module;
  if (out.id == BranchColumn::marks && !groups_.back().marked) return;
  for (size_t i = 0; i < condensed_.rows(); ++i) {
    const Block* const block = blocks + condensed_.block(i);
    if (out.id == BranchColumn::marks) {
      next_of<int32_t>(out)[i] = marks_.index_of(block->flags);
    } else {
      put_place(out, rows_ + i, names_.find(at.space, is_to ? nodes[block[1].node].to.ip : nodes[block->node].from.ip, at.time));
    }
  }
}

void BranchBatch::add_special(const RowContext& at, BranchBlocks& left, const BranchEnds& ends, const char* kind) {
  const Block block = left.blocks.front();
  reserve(rows_ + 1);
  mark_rows(block.flags);
  if (!has_symbols_) {
    const bool from_symbol = ends.has_from && has(BranchColumn::symbol) && names_.symbol(at.space, ends.from, at.time) >= 0;
    const bool to_symbol = ends.has_to && has(BranchColumn::to_symbol) && names_.symbol(at.space, ends.to, at.time) >= 0;
    if (from_symbol || to_symbol) begin_symbols();
  }
  const int32_t index = std::max(kinds_.index_of(kind), 0);
  const FlowBranch row{block, left.instructions + block.instructions};
  for (Output* out : row_outputs_) fill_special(*out, at, row, ends, index);
  groups_.back().end = ++rows_;
  left.blocks = left.blocks.subspan(1);
  left.instructions = 0;
}

void BranchBatch::put_place(Output& out, size_t index, const PlaceName& place) {
  if (out.id == BranchColumn::module || out.id == BranchColumn::to_module) {
    reinterpret_cast<int32_t*>(out.values)[index] = place.module;
  } else {
    reinterpret_cast<uint64_t*>(out.values)[index] = place.symbol >= 0 ? place.offset_bytes : 0;
    if (place.symbol < 0) out.nulls.push_back(index);
  }
}

void BranchBatch::fill_special(Output& out, const RowContext& at, const FlowBranch& row, const BranchEnds& ends, int32_t kind) {
  const bool is_to = out.id >= BranchColumn::to && out.id <= BranchColumn::to_module;
  const bool has_ip = is_to ? ends.has_to : ends.has_from;
  const Ip ip = is_to ? ends.to : ends.from;
  switch (out.id) {
    case BranchColumn::flags:
      *next_of<int32_t>(out) = kind;
      return;
    case BranchColumn::ip:
    case BranchColumn::to:
      *next_of<uint64_t>(out) = has_ip ? ip.value : 0;
      if (!has_ip) out.nulls.push_back(rows_);
      return;
    case BranchColumn::symbol:
    case BranchColumn::to_symbol: {
      if (!has_symbols_) return;
      const int32_t symbol = has_ip ? names_.symbol(at.space, ip, at.time) : -1;
      *next_of<int32_t>(out) = std::max(symbol, 0);
      return column_of(out.id).add_rows(1, symbol >= 0);
    }
    case BranchColumn::instructions:
      *next_of<uint32_t>(out) = row.instructions;
      return;
    case BranchColumn::marks:
      if (groups_.back().marked) *next_of<int32_t>(out) = marks_.index_of(row.block.flags);
      return;
    default:
      return put_place(out, rows_, has_ip ? names_.find(at.space, ip, at.time) : PlaceName{});
  }
}

RowBatch BranchBatch::finish() {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& out = outputs_[i];
    Column& column = batch_.columns[i];
    if (&out != output_of_[static_cast<size_t>(out.id)]) {
      column = column_of(out.id);
      continue;
    }
    if (is_written_late(out.id)) {
    } else if (width_of(column.info().type) == 8) {
      column.remove<uint64_t>(capacity_ - rows_);
    } else {
      column.remove<uint32_t>(capacity_ - rows_);
    }
    finish(out, column);
  }
  batch_.rows = last_rows_ = rows_;
  return std::exchange(batch_, {});
}

/// Adds the rows to the column, and the values of columns that are written late.
void BranchBatch::finish(Output& out, Column& column) {
  using At = const RowContext&;
  switch (out.id) {
    case BranchColumn::time_ns:
      return finish_context<int64_t>(out, column, [](At at) {
        return ContextValue<int64_t>{static_cast<int64_t>(at.time.value), at.time != kTimeMin};
      });
    case BranchColumn::stream:
      return finish_context<uint32_t>(out, column, [](At at) { return ContextValue<uint32_t>{at.stream, true}; });
    case BranchColumn::cpu:
      return finish_context<int32_t>(out, column, [](At at) { return ContextValue<int32_t>{at.cpu, at.cpu >= 0}; });
    case BranchColumn::pid:
      return finish_context<int32_t>(out, column, [](At at) { return ContextValue<int32_t>{at.pid, at.pid >= 0}; });
    case BranchColumn::tid:
      return finish_context<int32_t>(out, column, [](At at) { return ContextValue<int32_t>{at.tid, at.tid >= 0}; });
    case BranchColumn::space:
      return finish_context<uint32_t>(out, column, [](At at) { return ContextValue<uint32_t>{at.space.value, true}; });
    case BranchColumn::comm:
      return finish_comm(out, column);
    case BranchColumn::marks:
      return finish_marks(out, column);
    case BranchColumn::flags:
      column.set_names(kinds_.snapshot());
      return column.add_rows(rows_, true);
    case BranchColumn::symbol:
    case BranchColumn::to_symbol:
      column.set_names(names_.symbols.snapshot());
      if (has_symbols_) return;
      column.remove<int32_t>(rows_);
      return column.put_same<int32_t>(out.same, 0, false, rows_);
    case BranchColumn::module:
    case BranchColumn::to_module:
      column.set_names(names_.modules.snapshot());
      return column.add_names({reinterpret_cast<int32_t*>(out.values), rows_});
    default: {
      size_t done = 0;
      for (const size_t null : out.nulls) {
        column.add_rows(null - done, true);
        column.add_rows(1, false);
        done = null + 1;
      }
      column.add_rows(rows_ - done, true);
    }
  }
}

/// `get` returns the ContextValue of a context.
template <typename T, typename Get>
void BranchBatch::finish_context(Output& out, Column& column, const Get& get) {
  if (groups_.empty()) return;
  const ContextValue<T> first = get(groups_.front().at);
  const auto other = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) { return get(group.at) != first; });
  if (other == groups_.end()) return column.put_same<T>(out.same, first.value, first.valid, rows_);
  T* const values = column.append<T>(rows_);
  size_t done = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const ContextValue<T> own = get(groups_[i].at);
    while (i + 1 < groups_.size() && get(groups_[i + 1].at) == own) ++i;
    std::fill(values + done, values + groups_[i].end, own.value);
    column.add_rows(groups_[i].end - done, own.valid);
    done = groups_[i].end;
  }
}

void BranchBatch::finish_comm(Output& out, Column& column) {
  auto* const values = reinterpret_cast<int32_t*>(out.values);
  size_t done = 0;
  for (const Group& group : groups_) {
    std::fill(values + done, values + group.end, names_.comm(group.at.tid, group.at.time));
    done = group.end;
  }
  column.set_names(names_.comms.snapshot());
  column.add_names({values, rows_});
}

void BranchBatch::finish_marks(Output& out, Column& column) {
  column.set_names(marks_.names.snapshot());
  if (std::none_of(groups_.begin(), groups_.end(), [](const Group& group) { return group.marked; })) {
    column.remove<int32_t>(rows_);
    return column.put_same<int32_t>(out.same, 0, false, rows_);
  }
  auto* const values = reinterpret_cast<int32_t*>(out.values);
  size_t done = 0;
  for (const Group& group : groups_) {
    const std::span<int32_t> indexes(values + done, group.end - done);
    if (group.marked) {
      column.add_names(indexes);
    } else {
      std::fill(indexes.begin(), indexes.end(), 0);
      column.add_rows(indexes.size(), false);
    }
    done = group.end;
  }
}

}  // namespace ptd
