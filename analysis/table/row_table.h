// RowTable: a table whose rows are structs; each column is filled from many rows at once.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/table/table.h"

namespace ptd {

/// Fills a column from rows.
template <typename Row>
struct RowColumn {
  ColumnInfo info;
  bool by_default = true;
  std::function<void(std::span<const Row> rows, Column& out)> fill;
  NameList* names = nullptr;  ///< of a column of names
};

/// Takes rows from produce() in pieces that stay in the cache, and fills the wanted columns one after the other.
template <typename Row>
class RowTable : public Table {
 public:
  [[nodiscard]] std::vector<ColumnInfo> columns() const override {
    std::vector<ColumnInfo> infos;
    for (const RowColumn<Row>& column : columns_) infos.push_back(column.info);
    return infos;
  }

  [[nodiscard]] Result<RowBatch> next() override {
    RowBatch batch;
    for (const RowColumn<Row>& column : columns_) batch.columns.emplace_back(column.info);
    while (batch.rows < batch_rows_ && !is_large(batch)) {
      if (given_ == rows_.size()) {
        rows_.clear();
        given_ = 0;
        while (!over_ && rows_.size() < kStage) {
          Result<bool> more = produce(rows_);
          if (!more) return more.error();
          over_ = !more.value();
        }
        if (rows_.empty()) break;
      }
      const size_t count = std::min(batch_rows_ - batch.rows, rows_.size() - given_);
      const std::span<const Row> piece = std::span<const Row>(rows_).subspan(given_, count);
      for (size_t i = 0; i < columns_.size(); ++i) columns_[i].fill(piece, batch.columns[i]);
      given_ += count;
      batch.rows += count;
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].names != nullptr) batch.columns[i].set_names(columns_[i].names->snapshot());
    }
    return batch;
  }

 protected:
  /// Appends some rows, possibly none; false: these are the last.
  [[nodiscard]] virtual Result<bool> produce(std::vector<Row>& rows) = 0;

  /// Chooses the columns that the request names. Call once, in the constructor or before the first next().
  [[nodiscard]] Status choose(std::vector<RowColumn<Row>> all, const TableRequest& request, std::string_view table) {
    batch_rows_ = std::max<size_t>(request.batch_rows, 1);
    if (request.columns.empty()) {
      for (RowColumn<Row>& column : all) {
        if (column.by_default) columns_.push_back(std::move(column));
      }
      return {};
    }
    for (const std::string& name : request.columns) {
      const auto at = std::find_if(all.begin(), all.end(), [&](const RowColumn<Row>& column) { return column.info.name == name; });
      if (at == all.end()) {
        std::string known;
        for (const RowColumn<Row>& column : all) known += (known.empty() ? "" : ", ") + std::string(column.info.name);
        return Error{ErrorCode::invalid_argument, "the table '" + std::string(table) + "' has no column '" + name + "'; it has " + known, 0};
      }
      columns_.push_back(*at);
    }
    return {};
  }
  [[nodiscard]] bool has_column(std::string_view name) const {
    return std::any_of(columns_.begin(), columns_.end(), [&](const RowColumn<Row>& column) { return column.info.name == name; });
  }

 private:
  static constexpr size_t kStage = 1024;            // rows filled at once: they fit the L2 cache
  static constexpr size_t kMostBytes = 256U << 20;  // of one column of a batch; offsets have 31 bits
  [[nodiscard]] static bool is_large(const RowBatch& batch) {
    return std::any_of(batch.columns.begin(), batch.columns.end(), [](const Column& column) { return column.values().size() > kMostBytes; });
  }
  std::vector<RowColumn<Row>> columns_;
  std::vector<Row> rows_;
  size_t batch_rows_ = 0, given_ = 0;
  bool over_ = false;
};

// Columns of rows with a member, or with a function of the row.
template <typename Row, typename T, typename Get>
RowColumn<Row> value_column(std::string_view name, ColumnType type, const Get& get, bool by_default = true) {
  return {{name, type, false}, by_default, [get](std::span<const Row> rows, Column& out) { out.put<T>(rows, get); }, nullptr};
}
template <typename Row, typename T, typename Get, typename Has>
RowColumn<Row> optional_column(std::string_view name, ColumnType type, const Get& get, const Has& has, bool by_default = true) {
  return {{name, type, true}, by_default, [get, has](std::span<const Row> rows, Column& out) { out.put<T>(rows, get, has); }, nullptr};
}
template <typename Row, typename Get>
RowColumn<Row> bool_column(std::string_view name, const Get& get, bool by_default = true) {
  return {
      {name, ColumnType::boolean, false}, by_default, [get](std::span<const Row> rows, Column& out) { out.put_bits(rows, get); }, nullptr};
}
/// get(row) is an index into `names`, -1: null.
template <typename Row, typename Get>
RowColumn<Row> name_column(std::string_view name, NameList& names, const Get& get, bool by_default = true) {
  const auto fill = [get, indexes = std::vector<int32_t>()](std::span<const Row> rows, Column& out) mutable {
    indexes.clear();
    for (const Row& row : rows) indexes.push_back(get(row));
    out.put<int32_t>(indexes, [](int32_t index) { return index < 0 ? 0 : index; }, [](int32_t index) { return index >= 0; });
  };
  return {{name, ColumnType::name, true}, by_default, fill, &names};
}
/// get(row) is text or bytes as std::string_view with a data() of nullptr for null.
template <typename Row, typename Get>
RowColumn<Row> text_column(std::string_view name, ColumnType type, const Get& get, bool by_default = true) {
  const auto fill = [get, type](std::span<const Row> rows, Column& out) {
    for (const Row& row : rows) {
      const std::string_view text = get(row);
      if (text.data() == nullptr) {
        out.put_no_text();
      } else if (type == ColumnType::text) {
        out.put_text(valid_utf8(text));
      } else {
        out.put_text(text);
      }
    }
  };
  return {{name, type, true}, by_default, fill, nullptr};
}

}  // namespace ptd
