// Column: validity bits of rows that come in pieces of any length, alone or repeated.
#include "analysis/table/column.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace ptd {
namespace {

struct Value {
  int32_t value = 0;
  bool valid = false;
};

/// What the column must hold, one value after the other.
void expect_equal(const Column& column, const std::vector<Value>& expected) {
  ASSERT_EQ(column.rows(), expected.size());
  size_t nulls = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    int32_t value = 0;
    std::memcpy(&value, column.values().data() + i * sizeof(value), sizeof(value));
    const bool valid = column.valid().empty() || (column.valid()[i / 8] >> (i % 8) & 1) != 0;
    ASSERT_EQ(valid, expected[i].valid) << i;
    if (valid) {
      ASSERT_EQ(value, expected[i].value) << i;
    }
    nulls += valid ? 0U : 1U;
  }
  EXPECT_EQ(column.nulls(), nulls);
}

TEST(Column, PiecesOfAnyLengthKeepTheirBits) {
  std::mt19937 random(1);
  for (const unsigned nulls_percent : {0U, 3U, 50U, 100U}) {
    Column column({"x", ColumnType::int32, true});
    column.expect(1000);
    std::vector<Value> expected;
    for (int piece = 0; piece < 200; ++piece) {
      std::vector<Value> rows(1 + random() % 150);
      for (Value& row : rows) row = {static_cast<int32_t>(random()), random() % 100 >= nulls_percent};
      column.put_optional<int32_t>(rows, [](const Value& row, int32_t& value) {
        value = row.value;
        return row.valid;
      });
      expected.insert(expected.end(), rows.begin(), rows.end());
      const size_t repeated = random() % 3 == 0 ? random() % 200 : 0;
      column.repeat_last(repeated);
      expected.insert(expected.end(), repeated, expected.back());
    }
    expect_equal(column, expected);
  }
}

TEST(Column, RunsOfEqualValidityAndIndexesKeepTheirBits) {
  std::mt19937 random(2);
  for (const unsigned nulls_percent : {0U, 3U, 50U, 100U}) {
    Column column({"x", ColumnType::int32, true});
    std::vector<Value> expected;
    for (int piece = 0; piece < 300; ++piece) {
      const size_t count = random() % 200;
      const std::span<int32_t> added(column.append<int32_t>(count), count);
      if (random() % 2 == 0) {
        const bool valid = random() % 100 >= nulls_percent;
        std::fill(added.begin(), added.end(), valid ? 7 : 0);
        expected.insert(expected.end(), count, Value{valid ? 7 : 0, valid});
        column.add_rows(count, valid);
      } else {
        const unsigned percent = random() % 3 == 0 ? 100 : nulls_percent;
        for (int32_t& index : added) {
          const auto value = static_cast<int32_t>(random() & 0xffff);
          const bool valid = random() % 100 >= percent;
          index = valid ? value : -1;
          expected.push_back({valid ? value : 0, valid});
        }
        column.add_names(added);
      }
    }
    expect_equal(column, expected);
  }
}
TEST(Column, NullBitsOfAnyNumberOfRows) {
  std::mt19937 random(3);
  for (const unsigned nulls_percent : {0U, 3U, 50U, 100U}) {
    Column column({"x", ColumnType::int32, true});
    std::vector<Value> expected;
    for (size_t count = 0; count < 200; ++count) {
      std::vector<uint8_t> nulls((count + 63) / 64 * 8, static_cast<uint8_t>(random()));  // the bits after the last row are any
      int32_t* const values = column.append<int32_t>(count);
      for (size_t i = 0; i < count; ++i) {
        const bool valid = random() % 100 >= (count % 3 == 0 ? 0 : nulls_percent);
        nulls[i / 8] = static_cast<uint8_t>((nulls[i / 8] & ~(1U << (i % 8))) | (valid ? 0U : 1U << (i % 8)));
        values[i] = static_cast<int32_t>(expected.size());
        expected.push_back({values[i], valid});
      }
      column.add_rows_but(nulls, count);
    }
    expect_equal(column, expected);
  }
}
TEST(Column, TheFirstNullComesLate) {
  for (const size_t before : {0U, 1U, 7U, 8U, 63U, 64U, 65U, 1000U}) {
    Column column({"x", ColumnType::int32, true});
    std::vector<Value> rows(before + 1, Value{5, true});
    rows.back().valid = false;
    column.put_optional<int32_t>(rows, [](const Value& row, int32_t& value) {
      value = row.value;
      return row.valid;
    });
    column.repeat_last(9);
    rows.insert(rows.end(), 9, rows.back());
    expect_equal(column, rows);
  }
}

}  // namespace
}  // namespace ptd
