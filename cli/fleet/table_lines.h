// Tables as lines of JSON: written from the library's tables, and added up.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/table/table.h"

namespace ptd::cli {

/// The columns of a table of a unit: those that name places independently of the recording too.
[[nodiscard]] TableRequest unit_request(std::string_view table);
/// Tables that a unit writes. `edges` and `block_counts` are added up, the others are joined.
inline constexpr std::string_view kUnitTables[] = {"edges", "block_counts", "gaps", "events"};

/// Writes one object for each row of a table to `path`, which appears when it is complete. Errors: those of open_table() and WholeFile.
[[nodiscard]] Status write_lines(const Recording& recording, std::string_view table, const TableRequest& request, const std::string& path);

/// Same as above, for a table that is open.
[[nodiscard]] Status write_lines(Table& table, const std::string& path);

/// Joins files of `table` in their order. Rows of edges and block_counts that differ only in count, uncertain, first_ns and names become
/// one:
/// the sums, the earliest moment and its names; the most frequent come first. Errors: bad_format, and those of WholeFile.
[[nodiscard]] Status merge_lines(std::string_view table, const std::vector<std::string>& files, const std::string& path);

}  // namespace ptd::cli
