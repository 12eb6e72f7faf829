// The tables of an exported database that are written as docs/TABLES.md describes them, and the switches of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "analysis/table/row_reader.h"
#include "analysis/table/table.h"
#include "cli/calls/call_input.h"
#include "cli/export/database.h"
#include "cli/export/export_names.h"

namespace ptd::cli {

/// Moves to the next row; false: there is none, or TableRequest::cancelled ended the table.
[[nodiscard]] Result<bool> next_row(RowReader& rows);
/// Creates the table ptd_NAME with the columns of the request and writes its rows, of the threads that are wanted. `stopped` ends it early.
[[nodiscard]] Status write_plain_table(Database& database, CallInput& input, std::string_view name, const TableRequest& request,
                                       const std::function<bool()>& stopped);
/// Writes ptd_threads: the threads that the recording names, with the times in `threads` of those whose calls were followed. With
/// `fibres`, also a row for each fibre, which has the column of that name.
[[nodiscard]] Status write_threads(Database& database, CallInput& input, const std::vector<CallThread>& threads, bool fibres);
/// Writes context_switches, in the order of time: two rows for each, with the times of its OUT and IN records, or twice that of the one
/// record. Ctrl-C ends it early. Returns their number.
[[nodiscard]] Result<uint64_t> write_switches(Database& database, ExportNames& names, CallInput& input);

}  // namespace ptd::cli
