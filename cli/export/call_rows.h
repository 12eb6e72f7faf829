// CallRows: the tables of an exported database that come from calls.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "analysis/paths/call_paths.h"
#include "cli/calls/call_input.h"
#include "cli/export/database.h"
#include "cli/export/export_names.h"
#include "ptdecode/function_profile.h"

namespace ptd::cli {

/// Sets a column to CallThread::fibre; NULL for kUnknownFibre.
inline void set_fibre(Inserter& row, size_t column, uint64_t fibre) {
  fibre == kUnknownFibre ? row.set_null(column) : row.set(column, static_cast<int64_t>(fibre));
}

/// Which tables are written: calls with call_paths, and ptd_functions. With `fibres`, calls have the column of that name.
struct CallRowsWanted {
  bool calls = false, functions = false, fibres = false;
};

/// Writes these tables. A call's number is that of its start among all calls, so a caller's is less than those of the
/// calls that it makes. Calls beyond the limits of CallPaths have the path of their caller. Not thread-safe.
class CallRows {
 public:
  [[nodiscard]] static Result<std::unique_ptr<CallRows>> create(Database& database, ExportNames& names, CallInput& input,
                                                                CallRowsWanted wanted);
  [[nodiscard]] Status take(std::span<const CallStep> steps, const CallTree& tree);
  [[nodiscard]] Status finish();
  [[nodiscard]] uint64_t calls() const { return calls_ == nullptr ? 0 : calls_->rows(); }
  /// Calls that have the path of their caller.
  [[nodiscard]] uint64_t left_out() const { return open_.paths().left_out(); }

 private:
  struct Thread {
    int64_t id = 0;
    Interval named{kTimeMax, kTimeMin};  ///< when it has the name `comm`
    int64_t comm = 0;
    uint64_t fibre = 0;
  };
  struct Row {
    CallStep step;
    OpenCalls::Ended of;
    int64_t thread = 0, comm = 0;
    uint64_t fibre = 0;
  };
  CallRows(Database& database, ExportNames& names, CallInput& input, CallRowsWanted wanted)
      : database_(database), names_(names), input_(input), wanted_(wanted) {}
  Thread& thread_of(const CallStep& step, const CallTree& tree);
  void leave(const CallStep& step, const CallTree& tree);
  [[nodiscard]] Status write();
  [[nodiscard]] Status write_paths();
  [[nodiscard]] Status write_functions();
  [[nodiscard]] int64_t symbol_of(FunctionId function);

  Database& database_;
  ExportNames& names_;
  CallInput& input_;
  const CallRowsWanted wanted_;
  std::unique_ptr<Inserter> calls_;  ///< null: not wanted
  std::vector<Thread> threads_;
  std::vector<Row> rows_;  ///< written together, in the order of their numbers: a file grows faster at its end
  OpenCalls open_;
  std::vector<int64_t> symbols_;  ///< of each function's number; 0: not met
  FunctionProfile profile_;
};

}  // namespace ptd::cli
