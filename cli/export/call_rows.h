// CallRows: the tables of an exported database that come from calls.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cli/calls/call_input.h"
#include "cli/export/database.h"
#include "cli/export/export_names.h"
#include "ptdecode/function_profile.h"

namespace ptd::cli {

/// Writes ptd_functions and, `with_calls`, calls and call_paths. A call's number is that of its start among all calls, so a caller's is less than those of the
/// calls that it makes. Calls more than kMostDepth deep, and those after the first kMostPaths ways to call something, share the path of their
/// caller. Not thread-safe.
class CallRows {
 public:
  static constexpr size_t kMostDepth = 512, kMostPaths = size_t{1} << 22;

  [[nodiscard]] static Result<std::unique_ptr<CallRows>> create(Database& database, ExportNames& names, CallInput& input, bool with_calls);
  [[nodiscard]] Status take(std::span<const CallStep> steps, const CallTree& tree);
  [[nodiscard]] Status finish();
  [[nodiscard]] uint64_t calls() const { return calls_ == nullptr ? 0 : calls_->rows(); }
  /// Calls that share the path of their caller.
  [[nodiscard]] uint64_t without_path() const { return without_path_; }

 private:
  struct Open {
    int64_t call = 0;
    uint32_t path = 0;
  };
  struct Thread {
    int64_t id = 0;
    std::vector<Open> open;
    Interval named{kTimeMax, kTimeMin};  ///< when it has the name `comm`
    int64_t comm = 0;
  };
  struct Row {
    CallStep step;
    int64_t call = 0, parent = 0, thread = 0, comm = 0;
    uint32_t path = 0, parent_path = 0;
  };
  struct Path {
    uint32_t parent = 0;
    FunctionId function = kNoFunction;
  };
  CallRows(Database& database, ExportNames& names, CallInput& input) : database_(database), names_(names), input_(input) {}
  Thread& thread_of(const CallStep& step, const CallTree& tree);
  uint32_t path_below(uint32_t parent, size_t depth, FunctionId function);
  void enter(const CallStep& step, const CallTree& tree);
  void leave(const CallStep& step, const CallTree& tree);
  [[nodiscard]] Status write();
  [[nodiscard]] Status write_paths();
  [[nodiscard]] Status write_functions();
  [[nodiscard]] int64_t symbol_of(FunctionId function);

  Database& database_;
  ExportNames& names_;
  CallInput& input_;
  std::unique_ptr<Inserter> calls_;  ///< null: not wanted
  std::vector<Thread> threads_;
  std::vector<Row> rows_;    ///< written together, in the order of their numbers: a file grows faster at its end
  std::vector<Path> paths_;  ///< of a path's number: the index and kRoot
  std::unordered_map<uint64_t, uint32_t> path_ids_;  ///< by parent and function
  std::vector<int64_t> symbols_;  ///< of each function's number; 0: not met
  FunctionProfile profile_;
  int64_t last_call_ = 0;
  uint64_t without_path_ = 0;
};

}  // namespace ptd::cli
