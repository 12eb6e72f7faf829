// RowTable: batches end before a column is full, and every value is given.
#include "analysis/table/row_table.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ptd {
namespace {

class Texts : public RowTable<std::string_view> {
 public:
  Texts(std::vector<std::string_view> texts, ColumnType type) : texts_(std::move(texts)) {
    EXPECT_TRUE(
        choose({text_column<std::string_view>("bytes", type, [](std::string_view text) { return text; })}, TableRequest{}, "texts").ok());
  }
  using RowTable::set_most_bytes;

 protected:
  Result<bool> produce(std::vector<std::string_view>& rows) override {
    rows = texts_;
    return false;
  }

 private:
  std::vector<std::string_view> texts_;
};

/// All values, and the rows of each batch.
void read(Texts& table, std::vector<std::string>& texts, std::vector<size_t>& rows) {
  for (;;) {
    const Result<RowBatch> batch = table.next();
    ASSERT_TRUE(batch.ok());
    if (batch.value().rows == 0) return;
    rows.push_back(batch.value().rows);
    const Column& column = batch.value().columns.front();
    EXPECT_EQ(column.nulls(), 0U);
    for (size_t i = 0; i < column.rows(); ++i) {
      const auto from = static_cast<size_t>(column.offsets()[i]), to = static_cast<size_t>(column.offsets()[i + 1]);
      texts.emplace_back(reinterpret_cast<const char*>(column.values().data()) + from, to - from);
    }
  }
}

TEST(RowTable, ABatchEndsBeforeAColumnIsFull) {
  const std::vector<std::string_view> values = {"0123456789", "abcdefghij", "klmno", "", "0123456789012345678901234567890123456789",
                                                "x",          "y"};
  Texts table(values, ColumnType::binary);
  table.set_most_bytes(25);
  std::vector<std::string> texts;
  std::vector<size_t> rows;
  read(table, texts, rows);
  EXPECT_EQ(texts, std::vector<std::string>(values.begin(), values.end()));
  EXPECT_EQ(rows, (std::vector<size_t>{4, 1, 2}));  // a value may be larger than the limit if it is alone
}

TEST(RowTable, TextThatGrowsIsNotLost) {
  Texts table({"\xFF\xFF\xFF\xFF", "\xFF\xFF\xFF\xFF"}, ColumnType::text);
  table.set_most_bytes(15);
  std::vector<std::string> texts;
  std::vector<size_t> rows;
  read(table, texts, rows);
  EXPECT_EQ(rows, (std::vector<size_t>{1, 1}));
  EXPECT_EQ(texts, std::vector<std::string>(2, valid_utf8("\xFF\xFF\xFF\xFF")));
}

TEST(RowTable, AValueThatNoColumnHoldsIsNull) {
  constexpr size_t kSize = size_t{1} << 31;
  void* memory = mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Texts table({"a", {static_cast<const char*>(memory), kSize}, "b"}, ColumnType::binary);
  std::vector<bool> nulls;
  for (;;) {
    const Result<RowBatch> batch = table.next();
    ASSERT_TRUE(batch.ok());
    if (batch.value().rows == 0) break;
    const Column& column = batch.value().columns.front();
    for (size_t i = 0; i < column.rows(); ++i) nulls.push_back(!column.valid().empty() && (column.valid()[i / 8] >> (i % 8) & 1) == 0);
  }
  EXPECT_EQ(nulls, (std::vector<bool>{false, true, false}));
  munmap(memory, kSize);
}

}  // namespace
}  // namespace ptd
