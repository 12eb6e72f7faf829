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

/// A column that a table has.
struct ColumnChoice {
  ColumnInfo info;
  bool by_default = true;
};
/// The indexes of the columns that the request names, or of the default ones. Errors: `invalid_argument` for an unknown name.
[[nodiscard]] Result<std::vector<size_t>> choose_columns(std::span<const ColumnChoice> all, const TableRequest& request,
                                                         std::string_view table);

/// Fills a column from rows.
template <typename Row>
struct RowColumn {
  ColumnInfo info;
  bool by_default = true;
  std::function<void(std::span<const Row> rows, Column& out)> fill;
  NameList* names = nullptr;   ///< of a column of names
  bool same_in_group = false;  ///< all rows of a group (RowTable::end_group) have one value; only for columns of fixed width
  /// Of text and bytes: the value is not larger. May be empty if all values of a stage fit.
  std::function<size_t(const Row& row)> most_bytes = {};
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
    for (const RowColumn<Row>& column : columns_) batch.columns.emplace_back(column.info).expect(last_rows_);
    while (batch.rows < batch_rows_ && !is_large(batch)) {
      if (given_ == rows_.size()) {
        rows_.clear();
        group_ends_.clear();
        given_ = group_ = 0;
        while (!over_ && rows_.size() < kStage) {
          Result<bool> more = produce(rows_);
          if (!more) return more.error();
          over_ = !more.value();
          if (std::exchange(fill_now_, false) && !rows_.empty()) break;
        }
        if (rows_.empty()) break;
      }
      const size_t count = fitting(batch, std::min({batch_rows_ - batch.rows, rows_.size() - given_, kStage}));
      if (count == 0) break;
      for (size_t i = 0; i < columns_.size(); ++i) fill(columns_[i], given_, count, batch.columns[i]);
      given_ += count;
      while (group_ < group_ends_.size() && group_ends_[group_] <= given_) ++group_;
      batch.rows += count;
    }
    last_rows_ = batch.rows;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].names != nullptr) batch.columns[i].set_names(columns_[i].names->snapshot());
    }
    return batch;
  }

 protected:
  /// Appends some rows, possibly none; false: these are the last.
  [[nodiscard]] virtual Result<bool> produce(std::vector<Row>& rows) = 0;

  /// Ends a batch before a column of it has more bytes, unless a single value does.
  void set_most_bytes(size_t bytes) { most_bytes_ = bytes; }
  /// produce() may call it when rows refer to what its next call frees.
  void fill_now() { fill_now_ = true; }
  /// produce() may call it when the rows since the last call, the last of which is the last of `rows`, have the same context.
  void end_group(const std::vector<Row>& rows) { group_ends_.push_back(rows.size()); }

  /// Chooses the columns that the request names. Call once, in the constructor or before the first next().
  [[nodiscard]] Status choose(const std::vector<RowColumn<Row>>& all, const TableRequest& request, std::string_view table) {
    batch_rows_ = std::max<size_t>(request.batch_rows, 1);
    std::vector<ColumnChoice> choices;
    for (const RowColumn<Row>& column : all) choices.push_back({column.info, column.by_default});
    const Result<std::vector<size_t>> chosen = choose_columns(choices, request, table);
    if (!chosen) return chosen.error();
    for (const size_t index : chosen.value()) columns_.push_back(all[index]);
    return {};
  }

 private:
  static constexpr size_t kStage = 1024;  // rows filled at once: they fit the L2 cache
  [[nodiscard]] bool is_large(const RowBatch& batch) const {
    return std::any_of(batch.columns.begin(), batch.columns.end(),
                       [this](const Column& column) { return column.values().size() > most_bytes_; });
  }
  /// Returns how many of the next `count` rows fit the batch. The first row of a batch always does.
  [[nodiscard]] size_t fitting(const RowBatch& batch, size_t count) const {
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!columns_[i].most_bytes) continue;
      size_t bytes = batch.columns[i].values().size();
      for (size_t row = 0; row < count; ++row) {
        bytes += columns_[i].most_bytes(rows_[given_ + row]);
        if (bytes > most_bytes_ && batch.rows + row != 0) count = row;
      }
    }
    return count;
  }
  /// Fills a column from `count` rows of rows_ from `first` on.
  void fill(RowColumn<Row>& column, size_t first, size_t count, Column& out) {
    const std::span<const Row> rows = std::span<const Row>(rows_).subspan(first, count);
    size_t done = 0;
    for (size_t group = group_; column.same_in_group && done < count && group < group_ends_.size(); ++group) {
      const size_t end = std::min(group_ends_[group] - first, count);
      if (end == done) continue;
      column.fill(rows.subspan(done, 1), out);
      out.repeat_last(end - done - 1);
      done = end;
    }
    if (done < count) column.fill(rows.subspan(done), out);
  }

  std::vector<RowColumn<Row>> columns_;
  std::vector<Row> rows_;
  std::vector<size_t> group_ends_;  // indexes of rows_, ascending
  size_t group_ = 0;                // the first that ends after given_
  size_t batch_rows_ = 0, given_ = 0;
  size_t most_bytes_ = 256U << 20;  // of one column of a batch; offsets have 31 bits
  size_t last_rows_ = 0;            // of the batch before
  bool over_ = false, fill_now_ = false;
};

/// A table of what the recording holds, at least without the columns on request. The end of the trace's progress is that of the table.
template <typename Row>
class HeldTable : public RowTable<Row> {
 public:
  explicit HeldTable(const Recording& recording) : recording_(recording) {}
  [[nodiscard]] Result<RowBatch> next() override {
    const Error stopped{ErrorCode::cancelled, "the caller cancelled the operation", 0};
    if (cancelled_ && cancelled_()) return stopped;
    Result<RowBatch> batch = RowTable<Row>::next();
    if (cancelled_ && cancelled_()) return stopped;
    if (progress_) progress_(batch.ok() && batch->rows == 0 ? total_bytes_ : 0, total_bytes_);
    return batch;
  }

 protected:
  /// As RowTable::choose().
  [[nodiscard]] Status choose(const std::vector<RowColumn<Row>>& all, const TableRequest& request, std::string_view table) {
    cancelled_ = request.cancelled;
    progress_ = request.progress;
    total_bytes_ = trace_bytes(recording_, request.streams);
    return RowTable<Row>::choose(all, request, table);
  }
  const Recording& recording_;

 private:
  std::function<bool()> cancelled_;
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress_;
  uint64_t total_bytes_ = 0;
};

// Columns of rows with a member, or with a function of the row.
template <typename Row, typename T, typename Get>
RowColumn<Row> value_column(std::string_view name, ColumnType type, const Get& get, bool by_default = true) {
  return {{name, type, false}, by_default, [get](std::span<const Row> rows, Column& out) { out.put<T>(rows, get); }, nullptr, false};
}
template <typename Row, typename T, typename Get, typename Has>
RowColumn<Row> optional_column(std::string_view name, ColumnType type, const Get& get, const Has& has, bool by_default = true) {
  const auto fill = [get, has](std::span<const Row> rows, Column& out) {
    out.put_optional<T>(rows, [&](const Row& row, T& value) {
      value = static_cast<T>(get(row));
      return has(row);
    });
  };
  return {{name, type, true}, by_default, fill, nullptr, false};
}
template <typename Row, typename Get>
RowColumn<Row> bool_column(std::string_view name, const Get& get, bool by_default = true) {
  return {{name, ColumnType::boolean, false},
          by_default,
          [get](std::span<const Row> rows, Column& out) { out.put_bits(rows, get); },
          nullptr,
          false};
}
/// get(row) is an index into `names`, -1: null.
template <typename Row, typename Get>
RowColumn<Row> name_column(std::string_view name, NameList& names, const Get& get, bool by_default = true) {
  const auto fill = [get](std::span<const Row> rows, Column& out) {
    out.put_optional<int32_t>(rows, [&](const Row& row, int32_t& value) {
      const int32_t index = get(row);
      value = index < 0 ? 0 : index;
      return index >= 0;
    });
  };
  return {{name, ColumnType::name, true}, by_default, fill, &names, false};
}
/// get(row) is text or bytes as std::string_view with a data() of nullptr for null. What is larger than 2 GiB is null too.
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
  constexpr size_t kMostOfByte = 3;  // of a byte that is not UTF-8: see valid_utf8()
  const auto most_bytes = [get, type](const Row& row) {
    return (type == ColumnType::text ? kMostOfByte : 1) * std::string_view(get(row)).size();
  };
  return {{name, type, true}, by_default, fill, nullptr, false, most_bytes};
}

}  // namespace ptd
