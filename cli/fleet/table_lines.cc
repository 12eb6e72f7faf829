// Tables as lines of JSON: see table_lines.h.
#include "cli/fleet/table_lines.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/text/json_line.h"
#include "cli/text/output.h"
#include "image/base/mapped_file.h"
#include "image/base/whole_file.h"

namespace ptd::cli {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
T value_at(const Column& column, size_t row) {
  T value;
  std::memcpy(&value, column.values().data() + row * sizeof value, sizeof value);
  return value;
}

bool is_null(const Column& column, size_t row) { return !column.valid().empty() && (column.valid()[row / 8] >> (row % 8) & 1) == 0; }

std::string hex_of_bytes(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string_view text_at(const Column& column, size_t row) {
  const auto* bytes = reinterpret_cast<const char*>(column.values().data());
  return {bytes + column.offsets()[row], static_cast<size_t>(column.offsets()[row + 1] - column.offsets()[row])};
}

void add_value(const Column& column, size_t row, JsonLine& line) {
  const std::string_view name = column.info().name;
  if (is_null(column, row)) return line.verbatim(name, "null");
  switch (column.info().type) {
    case ColumnType::boolean:
      return line.boolean(name, (static_cast<unsigned>(column.values()[row / 8]) >> (row % 8) & 1) != 0);
    case ColumnType::int32:
      return line.signed_number(name, value_at<int32_t>(column, row));
    case ColumnType::uint32:
      return line.number(name, value_at<uint32_t>(column, row));
    case ColumnType::int64:
      return line.signed_number(name, value_at<int64_t>(column, row));
    case ColumnType::uint64:
      return line.number(name, value_at<uint64_t>(column, row));
    case ColumnType::text:
      return line.text(name, text_at(column, row));
    case ColumnType::binary:
      return line.text(name, hex_of_bytes(text_at(column, row)));
    case ColumnType::name: {
      const auto index = static_cast<size_t>(value_at<int32_t>(column, row));
      const NameSnapshot& names = column.names();
      return line.text(name,
                       {names.bytes.get() + names.offsets[index], static_cast<size_t>(names.offsets[index + 1] - names.offsets[index])});
    }
  }
}

/// Rows that are added up, by what tells them apart.
class Sums {
 public:
  void add(Json row) {
    Json key = row;
    for (const char* name : {"count", "uncertain", "first_ns", "symbol", "to_symbol"}) key.erase(name);
    const auto [known, is_new] = rows_.try_emplace(key.dump(), row);
    if (is_new) return;
    Json& sum = known->second;
    const auto moment = [](const Json& of) { return of["first_ns"].is_null() ? INT64_MAX : of["first_ns"].get<int64_t>(); };
    for (const char* name : {"count", "uncertain"}) row[name] = row[name].get<uint64_t>() + sum[name].get<uint64_t>();
    if (moment(row) < moment(sum)) {
      sum = std::move(row);
    } else {
      for (const char* name : {"count", "uncertain"}) sum[name] = row[name];
    }
  }
  [[nodiscard]] std::vector<const Json*> sorted() const {
    std::vector<const Json*> rows;
    for (const auto& [key, row] : rows_) rows.push_back(&row);
    std::stable_sort(rows.begin(), rows.end(), [](const Json* a, const Json* b) { return (*a)["count"] > (*b)["count"]; });
    return rows;
  }

 private:
  std::map<std::string, Json> rows_;
};

bool is_count(const Json& row, const char* name) { return row.contains(name) && row[name].is_number_unsigned(); }

/// Returns whether a row can be added up. Tables have no nested values. Those of a damaged file could be nested too deeply to be written.
bool is_row(const Json& row) {
  if (!row.is_object() || !is_count(row, "count") || !is_count(row, "uncertain") || !row.contains("first_ns")) return false;
  if (!row["first_ns"].is_null() && !row["first_ns"].is_number_integer()) return false;
  return std::none_of(row.begin(), row.end(), [](const Json& value) { return value.is_structured(); });
}

Error bad_line(const std::string& file, uint64_t offset) {
  return Error{ErrorCode::bad_format, file + ": a line is not a row of the table; decode the unit again", offset};
}

}  // namespace

TableRequest unit_request(std::string_view table) {
  TableRequest request;
  if (table == "edges")
    request.columns = {"count",     "uncertain", "flags", "space",       "ip",      "symbol",        "to",
                       "to_symbol", "first_ns",  "code",  "code_offset", "to_code", "to_code_offset"};
  if (table == "block_counts")
    request.columns = {"count",      "uncertain", "space",    "ip",   "symbol",     "instructions",
                       "size_bytes", "hash",      "first_ns", "code", "code_offset"};
  if (table == "gaps") request.columns = {"time_ns", "stream", "cpu", "pid", "tid", "reason", "ip", "symbol", "offset_bytes", "lost_bytes"};
  if (table == "events")
    request.columns = {"time_ns", "stream", "cpu", "pid", "tid", "event", "ip", "to", "payload", "aux", "offset_bytes"};
  return request;
}

Status write_lines(const Recording& recording, std::string_view table, const TableRequest& request, const std::string& path) {
  auto opened = open_table(recording, table, request);
  if (!opened) return opened.error();
  return write_lines(**opened, path);
}

Status write_lines(Table& table, const std::string& path) {
  auto file = WholeFile::open(path);
  if (!file) return file.error();
  TextBuffer text;
  for (;;) {
    const Result<RowBatch> batch = table.next();
    if (!batch) return batch.error();
    if (batch->rows == 0) break;
    for (size_t row = 0; row < batch->rows; ++row) {
      JsonLine line(text);
      for (const Column& column : batch->columns) add_value(column, row, line);
      line.end();
    }
    if (!(*file)->write(text.view())) break;
    text.clear();
  }
  return (*file)->finish();
}

Status merge_lines(std::string_view table, const std::vector<std::string>& files, const std::string& path) {
  const bool adds = table == "edges" || table == "block_counts";
  auto out = WholeFile::open(path);
  if (!out) return out.error();
  Sums sums;
  for (const std::string& file : files) {
    auto mapped = MappedFile::open(file);
    if (!mapped.ok()) return mapped.error();
    std::string_view text(reinterpret_cast<const char*>((*mapped)->bytes().data()), (*mapped)->bytes().size());
    if (!adds) (void)(*out)->write(text);
    for (uint64_t offset = 0; adds && !text.empty();) {
      const size_t end = text.find('\n');
      Json row = Json::parse(text.substr(0, end), nullptr, false);
      if (end == std::string_view::npos || !is_row(row)) return bad_line(file, offset);
      sums.add(std::move(row));
      text.remove_prefix(end + 1);
      offset += end + 1;
    }
  }
  for (const Json* row : sums.sorted()) (void)(*out)->write(row->dump() + "\n");
  return (*out)->finish();
}

}  // namespace ptd::cli
