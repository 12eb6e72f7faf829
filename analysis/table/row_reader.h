// RowReader: the rows of a table, one after the other.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/table/table.h"

namespace ptd {

/// Begins before the first row. Columns are numbered as the request names them. Not thread-safe.
class RowReader {
 public:
  explicit RowReader(std::unique_ptr<Table> table) : table_(std::move(table)) {}

  /// Moves to the next row; false: there is none. Errors: those of Table::next().
  [[nodiscard]] Result<bool> next() {
    if (++row_ < batch_.rows) return true;
    Result<RowBatch> batch = table_->next();
    if (!batch) return batch.error();
    batch_ = std::move(*batch);
    row_ = 0;
    return batch_.rows != 0;
  }
  [[nodiscard]] std::vector<ColumnInfo> columns() const { return table_->columns(); }
  [[nodiscard]] bool has(size_t column) const {
    const std::span<const uint8_t> valid = batch_.columns[column].valid();
    return valid.empty() || (valid[row_ / 8] >> (row_ % 8) & 1) != 0;
  }
  /// The value of a column of numbers or booleans; `none` if it is null. Addresses of the upper half are negative.
  [[nodiscard]] int64_t number(size_t column, int64_t none) const {
    if (!has(column)) return none;
    const Column& from = batch_.columns[column];
    switch (from.info().type) {
      case ColumnType::boolean:
        return static_cast<uint8_t>(from.values()[row_ / 8]) >> (row_ % 8) & 1;
      case ColumnType::int32:
        return at<int32_t>(from);
      case ColumnType::uint32:
        return at<uint32_t>(from);
      default:
        return at<int64_t>(from);
    }
  }
  /// The index of the value of a column of names, the same in every row; -1: null.
  [[nodiscard]] int32_t name(size_t column) const { return has(column) ? at<int32_t>(batch_.columns[column]) : -1; }
  /// A text, name or bytes, valid up to the next row. Empty if it is null.
  [[nodiscard]] std::string_view text(size_t column) const {
    if (!has(column)) return {};
    const Column& from = batch_.columns[column];
    if (from.info().type == ColumnType::name) {
      const NameSnapshot& names = from.names();
      const int32_t index = at<int32_t>(from);
      return {names.bytes.get() + names.offsets[index], static_cast<size_t>(names.offsets[index + 1] - names.offsets[index])};
    }
    const int32_t first = from.offsets()[row_], last = from.offsets()[row_ + 1];
    return {reinterpret_cast<const char*>(from.values().data()) + first, static_cast<size_t>(last - first)};
  }

 private:
  template <typename T>
  [[nodiscard]] T at(const Column& column) const {
    T value;
    std::memcpy(&value, column.values().data() + row_ * sizeof(T), sizeof(T));
    return value;
  }
  std::unique_ptr<Table> table_;
  RowBatch batch_;
  size_t row_ = 0;
};

}  // namespace ptd
