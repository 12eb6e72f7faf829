// open_table(): see table.h.
#include "analysis/table/table.h"

#include <algorithm>
#include <array>

#include "analysis/table/tables.h"
#include "recording/bundle/plan.h"

namespace ptd {

namespace {

constexpr std::array<std::string_view, 13> kTableNames = {"blocks",       "branches", "calls",  "functions", "edges",
                                                          "block_counts", "events",   "gaps",   "samples",   "findings",
                                                          "sections",     "versions", "threads"};

struct Opener {
  decltype(&open_unit_table) open;
  bool decodes;  ///< its tables decode the trace, unless they are made from steps
};
constexpr Opener kOpeners[] = {{open_unit_table, true}, {open_branch_table, true}, {open_flow_table, true},
                               {open_call_table, true}, {open_image_table, false}, {open_record_table, false}};

}  // namespace

std::span<const std::string_view> table_names() { return kTableNames; }

Result<std::vector<size_t>> choose_columns(std::span<const ColumnChoice> all, const TableRequest& request, std::string_view table) {
  std::vector<size_t> chosen;
  if (request.columns.empty()) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].by_default) chosen.push_back(i);
    }
    return chosen;
  }
  for (const std::string& name : request.columns) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const ColumnChoice& column) { return column.info.name == name; });
    if (at == all.end()) {
      std::string known;
      for (const ColumnChoice& column : all) known += (known.empty() ? "" : ", ") + std::string(column.info.name);
      return Error{ErrorCode::invalid_argument, "the table '" + std::string(table) + "' has no column '" + name + "'; it has " + known, 0};
    }
    chosen.push_back(static_cast<size_t>(at - all.begin()));
  }
  return chosen;
}

uint64_t trace_bytes(const Recording& recording, const std::vector<uint32_t>& streams) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < recording.streams().size(); ++i) {
    if (streams.empty() || std::find(streams.begin(), streams.end(), i) != streams.end()) bytes += recording.streams()[i].size_bytes;
  }
  return bytes;
}

Result<std::unique_ptr<Table>> open_table(const Recording& recording, std::string_view name, const TableRequest& request) {
  for (const uint32_t stream : request.streams) {
    if (stream >= recording.streams().size()) {
      return Error{ErrorCode::no_such_stream,
                   "there is no stream " + std::to_string(stream) + "; the recording has " + std::to_string(recording.streams().size()), 0};
    }
  }
  if (!request.functions.empty() && name != "calls" && name != "functions" && name != "open_calls")
    return Error{ErrorCode::invalid_argument, "only the tables 'calls' and 'functions' can be limited to functions", 0};
  for (const auto& [open, decodes] : kOpeners) {
    Result<std::unique_ptr<Table>> table = open(recording, name, request);
    if (table.ok() && !table.value()) continue;
    const bool decodes_all = decodes && name != "threads" && !request.unit && request.steps == nullptr;  // `threads` may need no decode
    if (Status status = table.ok() && decodes_all ? check_units(recording) : Status(); !status) return status.error();
    return table;
  }
  std::string known;
  for (const std::string_view one : kTableNames) known += (known.empty() ? "" : ", ") + std::string(one);
  return Error{ErrorCode::invalid_argument, "there is no table '" + std::string(name) + "'; the tables are " + known, 0};
}

}  // namespace ptd
