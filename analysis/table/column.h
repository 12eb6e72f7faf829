// Column: the values of one column of a table, in Arrow's memory layout.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptdecode/flow.h"

namespace ptd {

enum class ColumnType : uint8_t {
  boolean,
  int32,
  uint32,
  int64,
  uint64,
  text,    ///< UTF-8
  binary,  ///< bytes
  name,    ///< UTF-8, dictionary-encoded: int32 indexes into a NameList
};

struct ColumnInfo {
  std::string_view name;  ///< static
  ColumnType type = ColumnType::int64;
  bool nullable = false;
};

/// What a NameList held at some moment. Stays unchanged while the list grows.
struct NameSnapshot {
  std::shared_ptr<const char[]> bytes;
  std::shared_ptr<const int32_t[]> offsets;  ///< count + 1
  int32_t count = 0;
};

/// The dictionary of a column of names. Grows only: a name keeps its index. Not thread-safe; snapshots may be read by any thread.
class NameList {
 public:
  NameList();
  /// The index of `name`, which is added if it is new. Bytes that are not UTF-8 are replaced. -1: the list is full.
  int32_t index_of(std::string_view name);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] NameSnapshot snapshot() const { return {bytes_, offsets_, count_}; }

 private:
  static constexpr int32_t kMostBytes = 1 << 30;
  void reserve(size_t bytes);
  [[nodiscard]] std::string_view at(int32_t index) const {
    return {bytes_.get() + offsets_[index], static_cast<size_t>(offsets_[index + 1] - offsets_[index])};
  }
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  std::shared_ptr<char[]> bytes_;
  std::shared_ptr<int32_t[]> offsets_;
  size_t bytes_capacity_ = 0, offsets_capacity_ = 0;
  int32_t count_ = 0;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> indexes_;
};

/// Copies `text`; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string valid_utf8(std::string_view text);

/// The memory of columns in which all values are the same. Columns of several batches share it. Not thread-safe; the memory may be read by
/// any thread.
class SameValues {
 public:
  /// At least `rows` times `value`.
  template <typename T>
  [[nodiscard]] const std::shared_ptr<const std::byte[]>& of(T value, size_t rows) {
    if (rows > rows_ || static_cast<uint64_t>(value) != value_) {
      std::shared_ptr<std::byte[]> values(new std::byte[rows * sizeof(T)]);
      std::fill_n(reinterpret_cast<T*>(values.get()), rows, value);
      values_ = std::move(values);
      rows_ = rows;
      value_ = static_cast<uint64_t>(value);
    }
    return values_;
  }

 private:
  std::shared_ptr<const std::byte[]> values_;
  size_t rows_ = 0;
  uint64_t value_ = 0;
};

/// Filled from the front; then immutable.
class Column {
 public:
  explicit Column(const ColumnInfo& info) : info_(info) {
    if (info.type == ColumnType::text || info.type == ColumnType::binary) offsets_.push_back(0);
  }

  [[nodiscard]] const ColumnInfo& info() const { return info_; }
  [[nodiscard]] size_t rows() const { return rows_; }
  [[nodiscard]] size_t nulls() const { return nulls_; }
  /// Fixed width: the values; boolean: a bit each; text and binary: their bytes.
  [[nodiscard]] std::span<const std::byte> values() const {
    return same_values_ ? std::span(same_values_.get(), same_bytes_) : std::span<const std::byte>(values_);
  }
  [[nodiscard]] std::span<const int32_t> offsets() const { return offsets_; }
  /// A bit per row, set if it has a value. Empty: all have.
  [[nodiscard]] std::span<const uint8_t> valid() const { return valid_; }
  [[nodiscard]] const NameSnapshot& names() const { return names_; }
  void set_names(NameSnapshot names) { names_ = std::move(names); }

  /// Reserves memory for so many rows of fixed width when the first come.
  void expect(size_t rows) { expected_rows_ = rows; }

  /// Appends get(row) of each row.
  template <typename T, typename Rows, typename Get>
  void put(const Rows& rows, const Get& get) {
    T* out = extend<T>(rows.size());
    for (const auto& row : rows) *out++ = static_cast<T>(get(row));
    rows_ += rows.size();
  }
  /// The same with get(row, value), which sets `value` and returns false for null; it may be called twice. In a column, all values come
  /// from one of the two.
  template <typename T, typename Rows, typename Get>
  void put_optional(const Rows& rows, const Get& get) {
    T* out = extend<T>(rows.size());
    for (size_t i = 0; i < rows.size();) {
      const size_t end = std::min<size_t>(rows.size(), i + 64);
      const auto count = static_cast<unsigned>(end - i);
      bool all = true, any = false;
      for (unsigned j = 0; j < count; ++j) {
        const bool has = get(rows[i + j], out[j]);
        all &= has;
        any |= has;
      }
      if (all || !any) {
        add_rows(count, all);
      } else {
        uint64_t bits = 0;
        for (unsigned j = 0; j < count; ++j) bits |= uint64_t{get(rows[i + j], out[j])} << j;
        add_valid(bits, count);
      }
      out += count;
      i = end;
    }
  }
  template <typename Rows, typename Get>
  void put_bits(const Rows& rows, const Get& get) {
    values_.resize((rows_ + rows.size() + 7) / 8, std::byte{0});
    for (const auto& row : rows) {
      if (get(row)) values_[rows_ / 8] |= static_cast<std::byte>(1U << (rows_ % 8));
      ++rows_;
    }
  }
  /// Appends `count` values of fixed width, which the caller writes. Then it adds their rows with add_rows() or add_names().
  template <typename T>
  [[nodiscard]] T* append(size_t count) {
    return extend<T>(count);
  }
  /// Removes the last `count` values that append() added.
  template <typename T>
  void remove(size_t count) {
    values_.resize(values_.size() - count * sizeof(T));
  }
  /// Makes the empty column `rows` times `value`, or null. Always the same `same`.
  template <typename T>
  void put_same(SameValues& same, T value, bool valid, size_t rows) {
    same_values_ = same.of(value, rows);
    same_bytes_ = rows * sizeof(T);
    add_rows(rows, valid);
  }
  /// Adds rows that all have a value, or are all null.
  void add_rows(size_t count, bool valid) {
    if (valid && valid_.empty()) {
      rows_ += count;
    } else {
      add_same_rows(count, valid);
    }
  }
  /// Adds `count` rows, at most 64, of which the lowest bits of `bits` say whether they have a value; its other bits are 0.
  void add_valid(uint64_t bits, unsigned count);
  /// Adds `count` rows, of which those with a bit in `nulls` are null. The array has whole words of 64 bits; the bits after `count` may be
  /// set.
  void add_rows_but(std::span<const uint8_t> nulls, size_t count);
  /// Adds rows of indexes, of which the negative ones become null.
  void add_names(std::span<int32_t> indexes);
  /// Appends the last row `count` times; not for text, binary and booleans.
  void repeat_last(size_t count);
  /// One value of text or binary; text must be UTF-8. False: it exceeds the limit of the column, which gets null.
  bool put_text(std::string_view text);
  void put_no_text();

 private:
  template <typename T>
  T* extend(size_t count) {
    const size_t at = values_.size();
    if (at == 0) values_.reserve(expected_rows_ * sizeof(T));
    values_.resize(at + count * sizeof(T));
    return reinterpret_cast<T*>(values_.data() + at);
  }
  void add_same_rows(size_t count, bool valid);
  void mark_valid_from_start();

  ColumnInfo info_;
  size_t rows_ = 0, nulls_ = 0, expected_rows_ = 0;
  std::vector<std::byte, RoomFor<std::byte>> values_;
  std::shared_ptr<const std::byte[]> same_values_;  // in place of values_
  size_t same_bytes_ = 0;
  std::vector<int32_t> offsets_;
  std::vector<uint8_t> valid_;
  NameSnapshot names_;
};

/// Some rows of a table: columns of equal length.
struct RowBatch {
  size_t rows = 0;
  std::vector<Column> columns;
};

}  // namespace ptd
