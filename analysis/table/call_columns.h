// Columns of tables with a row for each call or function.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/names/call_names.h"
#include "analysis/table/place_names.h"
#include "analysis/table/row_table.h"
#include "analysis/table/tables.h"
#include "ptdecode/call_tree.h"
#include "ptdecode/function_table.h"

namespace ptd {

/// Function ids as indexes into lists of names. Not thread-safe.
class FunctionNames {
 public:
  struct Names {
    int32_t function = -1, module = -1, code = -1;
    uint64_t offset_bytes = 0;
  };
  explicit FunctionNames(const FunctionTable& table) : table_(&table) {}
  /// Another table, before the first name.
  void use(const FunctionTable& table) { table_ = &table; }
  [[nodiscard]] std::string_view name(FunctionId id) const {
    return id == kNoFunction ? std::string_view("[not traced]") : std::string_view(table_->info(id).name);
  }
  [[nodiscard]] std::string_view module(FunctionId id) const {
    return id == kNoFunction ? std::string_view() : std::string_view(table_->info(id).module);
  }
  [[nodiscard]] const Names& of(FunctionId id) {
    const size_t index = id == kNoFunction ? 0 : size_t{id} + 1;
    if (index >= known_.size()) known_.resize(std::max(index + 1, 2 * known_.size()));
    std::optional<Names>& entry = known_[index];
    if (!entry) {
      const FunctionCode code = table_->code(id);
      const bool one = code.state == FunctionCode::State::one;
      entry = Names{functions.index_of(name(id)), modules.index_of(module(id)), one ? codes.index_of(code.code) : -1, code.offset_bytes};
    }
    return *entry;
  }
  NameList functions, modules, codes;

 private:
  const FunctionTable* table_;
  std::vector<std::optional<Names>> known_;
};

/// Whether a request names a column of code.
[[nodiscard]] inline bool asks_for_code(const std::vector<std::string>& columns) {
  return std::any_of(columns.begin(), columns.end(), [](const std::string& name) { return name.find("code") != std::string::npos; });
}

/// The code of the function that get(row) returns, on request.
template <typename Row, typename Get>
void add_code_columns(std::vector<RowColumn<Row>>& columns, FunctionNames& names, const Get& get) {
  columns.push_back(name_column<Row>(
      "code", names.codes, [&names, get](const Row& row) { return names.of(get(row)).code; }, false));
  columns.push_back(optional_column<Row, uint64_t>(
      "code_offset", ColumnType::uint64, [&names, get](const Row& row) { return names.of(get(row)).offset_bytes; },
      [&names, get](const Row& row) { return names.of(get(row)).code >= 0; }, false));
}

struct CallRow {
  CallStep step;
  int32_t pid = -1, tid = -1;
  uint32_t group = 0;
  uint64_t fibre = 0;
};

/// The columns of a table of calls. Not thread-safe. The recording and the table of functions must outlive it.
class CallColumns {
 public:
  CallColumns(const Recording& recording, const FunctionTable& functions) : names_(functions), comms_(recording) {}

  [[nodiscard]] std::vector<RowColumn<CallRow>> all() {
    using Row = CallRow;
    std::vector<RowColumn<Row>> columns;
    const auto number = [&columns](std::string_view name, uint64_t CallStep::*member) {
      columns.push_back(value_column<Row, uint64_t>(name, ColumnType::uint64, [member](const Row& row) { return row.step.*member; }));
    };
    const auto duration = [&columns](std::string_view name, uint64_t CallStep::*member) {
      columns.push_back(optional_column<Row, uint64_t>(
          name, ColumnType::uint64, [member](const Row& row) { return row.step.*member; },
          [](const Row& row) { return (row.step.flags & kCallUndated) == 0; }));
    };
    const auto id = [](auto get) { return get; };
    columns.push_back(optional_column<Row, int32_t>("pid", ColumnType::int32, id([](const Row& row) { return row.pid; }),
                                                    [](const Row& row) { return row.pid >= 0; }));
    columns.push_back(optional_column<Row, int32_t>("tid", ColumnType::int32, id([](const Row& row) { return row.tid; }),
                                                    [](const Row& row) { return row.tid >= 0; }));
    columns.push_back(name_column<Row>("comm", comms_.comms, [this](const Row& row) { return comms_.comm(row.tid, row.step.start); }));
    columns.push_back(optional_column<Row, int32_t>("cpu", ColumnType::int32, id([](const Row& row) { return row.step.cpu; }),
                                                    [](const Row& row) { return row.step.cpu >= 0; }));
    columns.push_back(name_column<Row>("call", names_.functions, [this](const Row& row) { return names_.of(row.step.function).function; }));
    columns.push_back(name_column<Row>("module", names_.modules, [this](const Row& row) { return names_.of(row.step.function).module; }));
    columns.push_back(name_column<Row>("kind", kinds_, [this](const Row& row) { return kinds_.index_of(name(row.step.frame)); }));
    columns.push_back(value_column<Row, uint32_t>("depth", ColumnType::uint32, [](const Row& row) { return row.step.depth; }));
    for (const auto& [time_name, time] : {std::pair("start_ns", &CallStep::start), std::pair("end_ns", &CallStep::time)}) {
      columns.push_back(optional_column<Row, int64_t>(
          time_name, ColumnType::int64, [time = time](const Row& row) { return (row.step.*time).value; },
          [time = time](const Row& row) { return is_bounded(row.step.*time); }));
    }
    duration("self_ns", &CallStep::self_ns);
    duration("off_cpu_ns", &CallStep::off_cpu_ns);
    duration("untraced_ns", &CallStep::untraced_ns);
    duration("lost_ns", &CallStep::lost_ns);
    number("instructions", &CallStep::instructions);
    number("self_instructions", &CallStep::self_instructions);
    number("cycles", &CallStep::cycles);
    number("self_cycles", &CallStep::self_cycles);
    columns.push_back(bool_column<Row>("start_seen", [](const Row& row) { return (row.step.flags & (kCallNoStart | kCallMiddle)) == 0; }));
    columns.push_back(bool_column<Row>("end_seen", [](const Row& row) { return (row.step.flags & kCallCut) == 0; }));
    columns.push_back(bool_column<Row>("estimated", [](const Row& row) { return (row.step.flags & kCallEstimated) != 0; }));
    return columns;
  }

 private:
  FunctionNames names_;
  PlaceNames comms_;
  NameList kinds_;
};

}  // namespace ptd
