// Tables: what a recording holds as rows and columns, made while they are read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/table/column.h"
#include "ptdecode/error.h"
#include "ptdecode/recording.h"
#include "recording/data/plan_data.h"

namespace ptd {

struct StepFiles;
class UnitPass;

/// Which rows and columns of a table are wanted.
struct TableRequest {
  std::vector<std::string> columns;    ///< in this order; empty: the default columns
  std::vector<std::string> functions;  ///< names or globs: only rows of these functions; empty: all
  std::vector<uint32_t> streams;       ///< empty: all
  /// Only what this unit of a plan owns: its stream is the only one of `streams`.
  std::optional<PlanUnit> unit;
  /// The decode that the table shares with others, of `unit`: for edges, block_counts, events, gaps and calls. One thread at a time uses
  /// one of them.
  std::shared_ptr<UnitPass> pass;
  std::string path;                        ///< of the recording: `samples` are read from the file
  std::function<Status()> unchanged;       ///< whether that is still the recording's file; called when it was read. May be empty
  std::shared_ptr<const StepFiles> steps;  ///< as CallWalkOptions::steps, for tables of calls
  bool all_steps = false;                  ///< as CallWalkOptions::all_steps
  int32_t cpu = -1, pid = -1, tid = -1;    ///< -1: all
  Interval time;                           ///< only rows of this time
  size_t batch_rows = 1U << 16;
  unsigned threads = 0;  ///< that decode calls and functions; 0: one for each core
  /// Called now and then; true ends the table with the error `cancelled`. May run on another thread, one call at a time. May be empty.
  std::function<bool()> cancelled;
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;  ///< likewise
};

/// A table that is being read. Not thread-safe. Destroying it ends its threads.
class Table {
 public:
  virtual ~Table() = default;
  /// The columns of each batch.
  [[nodiscard]] virtual std::vector<ColumnInfo> columns() const = 0;
  /// The next rows: request.batch_rows of them, fewer at the end; no rows: the end. Errors: those of Recording::decode(), `cancelled`.
  [[nodiscard]] virtual Result<RowBatch> next() = 0;
  /// Whether next() needs threads, which a forked child has not.
  [[nodiscard]] virtual bool has_threads() const { return false; }
};

/// Returns the bytes of trace of these streams; empty: of all.
[[nodiscard]] uint64_t trace_bytes(const Recording& recording, const std::vector<uint32_t>& streams);

/// Names of all tables, in the order of docs/TABLES.md.
[[nodiscard]] std::span<const std::string_view> table_names();

/// Opens a table; decoding begins with the first next(). The recording must outlive it. Errors: `invalid_argument` for a table, column or
/// stream that does not exist, or a filter that the table has not; those of check_units() for a table that decodes a whole plan.
[[nodiscard]] Result<std::unique_ptr<Table>> open_table(const Recording& recording, std::string_view name, const TableRequest& request);

}  // namespace ptd
