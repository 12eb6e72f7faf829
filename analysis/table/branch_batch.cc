// BranchBatch: see branch_batch.h.
#include "analysis/table/branch_batch.h"

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

/// Whether the nodes of a row give the value, with fill_from() and fill_to().
[[nodiscard]] bool is_of_node(BranchColumn id) {
  constexpr std::array kColumns = {BranchColumn::flags, BranchColumn::ip, BranchColumn::symbol, BranchColumn::to, BranchColumn::to_symbol,
                                   BranchColumn::instructions};
  return std::find(kColumns.begin(), kColumns.end(), id) != kColumns.end();
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
    out.same_as = static_cast<size_t>(first - outputs_.data());
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
  for (Output& out : outputs_) {
    batch_.columns.emplace_back(info_of(out.id));
    out.nulls.clear();
  }
  reserve(std::min(most_rows_, std::max(last_rows_, kLeastCapacity)));
}

/// Makes the columns that are written before finish() at least so long.
void BranchBatch::reserve(size_t rows) {
  if (rows <= capacity_) return;
  const size_t larger = std::min(most_rows_, std::max(rows, 2 * capacity_));
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (is_written_late(outputs_[i].id)) continue;
    Column& column = batch_.columns[i];
    if (width_of(column.info().type) == 8) {
      outputs_[i].values = reinterpret_cast<std::byte*>(column.append<uint64_t>(larger - capacity_) - capacity_);
    } else {
      outputs_[i].values = reinterpret_cast<std::byte*>(column.append<uint32_t>(larger - capacity_) - capacity_);
    }
  }
  capacity_ = larger;
}

void BranchBatch::begin_rows(const RowContext& at, uint16_t block_flags, size_t count) {
  reserve(rows_ + count);
  groups_.push_back({at, rows_ + count, MarkNames::any(block_flags)});
}

void BranchBatch::add(const RowContext& at, std::span<const FlowBranch> rows, BranchFlow& flow, BranchNodes& nodes) {
  for (; !rows.empty(); rows = rows.subspan(std::min(rows.size(), kPiece))) add_piece(at, rows.first(std::min(rows.size(), kPiece)), flow, nodes);
}

void BranchBatch::add_piece(const RowContext& at, std::span<const FlowBranch> rows, BranchFlow& flow, BranchNodes& nodes) {
  const uint32_t epoch = nodes.enter(at);
  const auto fill = [&] {
    const BranchNodes::Node* const values = nodes.nodes(flow);
    return fill_from(rows, values, epoch) | fill_to(rows, values, epoch);
  };
  if (fill() != 0) {
    nodes.add({names_, kinds_}, flow, at, rows);
    (void)fill();
  }
  for (Output* out : rare_outputs_) fill_rare(*out, at, rows, nodes.nodes(flow));
  rows_ += rows.size();
}

/// Where the values of a column go on.
template <typename T>
T* BranchBatch::next_of(BranchColumn id) {
  return has(id) ? next_of<T>(*output_of_[static_cast<size_t>(id)]) : reinterpret_cast<T*>(unwanted_.data());
}

/// Fills the columns that the branch itself and the block that ends in it give. All in one loop, which takes less time than a loop for each.
/// Returns 0 if all nodes are of this epoch.
uint32_t BranchBatch::fill_from(std::span<const FlowBranch> rows, const BranchNodes::Node* nodes, uint32_t epoch) {
  auto* flags = next_of<int32_t>(BranchColumn::flags);
  auto* ip = next_of<Ip>(BranchColumn::ip);
  auto* symbol = next_of<int32_t>(BranchColumn::symbol);
  auto* instructions = next_of<uint32_t>(BranchColumn::instructions);
  uint32_t other = 0;
  for (const FlowBranch& row : rows) {
    const BranchNodes::Node& node = nodes[row.block.node];
    other |= node.epoch ^ epoch;
    *flags++ = node.kind;
    *ip++ = node.from;
    *symbol++ = node.from_symbol;
    *instructions++ = row.instructions;
  }
  return other;
}

/// The same for the columns that the block at the target gives.
uint32_t BranchBatch::fill_to(std::span<const FlowBranch> rows, const BranchNodes::Node* nodes, uint32_t epoch) {
  auto* to = next_of<Ip>(BranchColumn::to);
  auto* symbol = next_of<int32_t>(BranchColumn::to_symbol);
  uint32_t other = 0;
  for (const FlowBranch& row : rows) {
    const BranchNodes::Node& node = nodes[row.to_node];
    other |= node.epoch ^ epoch;
    *to++ = node.ip;
    *symbol++ = node.symbol;
  }
  return other;
}

void BranchBatch::fill_rare(Output& out, const RowContext& at, std::span<const FlowBranch> rows, const BranchNodes::Node* nodes) {
  if (out.id == BranchColumn::marks) {
    if (!groups_.back().marked) return;
    auto* next = next_of<int32_t>(out);
    for (const FlowBranch& row : rows) *next++ = marks_.index_of(row.block.flags);
    return;
  }
  const bool is_to = out.id == BranchColumn::to_offset || out.id == BranchColumn::to_module;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Ip ip = is_to ? nodes[rows[i].to_node].ip : nodes[rows[i].block.node].from;
    put_place(out, rows_ + i, names_.find(at.space, ip, at.time));
  }
}

void BranchBatch::add(const RowContext& at, const FlowBranch& row, const BranchEnds& ends, const char* kind) {
  const int32_t index = std::max(kinds_.index_of(kind), 0);
  for (Output* out : row_outputs_) fill(*out, at, row, ends, index);
  ++rows_;
}

void BranchBatch::put_place(Output& out, size_t index, const PlaceName& place) {
  if (out.id == BranchColumn::module || out.id == BranchColumn::to_module) {
    reinterpret_cast<int32_t*>(out.values)[index] = place.module;
  } else {
    reinterpret_cast<uint64_t*>(out.values)[index] = place.symbol >= 0 ? place.offset_bytes : 0;
    if (place.symbol < 0) out.nulls.push_back(index);
  }
}

void BranchBatch::fill(Output& out, const RowContext& at, const FlowBranch& row, const BranchEnds& ends, int32_t kind) {
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
    case BranchColumn::to_symbol:
      *next_of<int32_t>(out) = has_ip ? names_.symbol(at.space, ip, at.time) : -1;
      return;
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
    if (is_written_late(out.id)) continue;
    const bool wide = width_of(batch_.columns[i].info().type) == 8;
    if (const Output& first = outputs_[out.same_as]; first.values != out.values) {
      std::memcpy(out.values, first.values, rows_ * (wide ? 8 : 4));
      out.nulls = first.nulls;
    }
    if (wide) {
      batch_.columns[i].remove<uint64_t>(capacity_ - rows_);
    } else {
      batch_.columns[i].remove<uint32_t>(capacity_ - rows_);
    }
  }
  for (size_t i = 0; i < outputs_.size(); ++i) finish(outputs_[i], batch_.columns[i]);
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
      return column.add_names({reinterpret_cast<int32_t*>(out.values), rows_});
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
