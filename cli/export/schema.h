// The statements that make an exported database.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace ptd::cli {

/// Returns the statements that create the tables: those of perf's export-to-sqlite.py, some with further columns, and ptd_functions,
/// ptd_threads and ptd_info.
[[nodiscard]] const char* schema_tables();
/// Returns the statements that remove the tables in `empty`, and create views of the others: perf's views, and those of the tables in
/// docs/TABLES.md. The views ptd_branches and ptd_samples may be in `empty`, too. `fibres`: calls have the column `fibre`. Like perf's
/// script does, because its viewer offers the reports whose tables are there.
[[nodiscard]] std::string schema_views(const std::set<std::string>& empty, bool fibres);
/// Returns a statement for each index of tables that are not in `empty`.
[[nodiscard]] std::vector<std::string> schema_indexes(const std::set<std::string>& empty);

}  // namespace ptd::cli
