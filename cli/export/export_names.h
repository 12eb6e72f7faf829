// ExportNames: what the rows of an exported database refer to by number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cli/export/database.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// Numbers threads, names of threads, files and functions, as perf's tables `threads`, `comms`, `dsos` and `symbols` do. 0: unknown. Holds
/// one entry for each. Not thread-safe. The recording must outlive it.
class ExportNames {
 public:
  explicit ExportNames(const Recording& recording) : recording_(recording) {}

  [[nodiscard]] int64_t thread(int32_t pid, int32_t tid);
  /// The number of what a process is called, and the fact that `thread` was called so.
  [[nodiscard]] int64_t comm(std::string_view comm, int32_t pid, int64_t thread, TimeNs when);
  /// A thread of this name has calls.
  void add_calls_of(int64_t comm) { comms_[static_cast<size_t>(comm) - 1].has_calls = true; }
  /// The number of a file; 0 for the empty name.
  [[nodiscard]] int64_t file(std::string_view module);
  /// The number of a function named as in FunctionInfo; 0 for the empty name. If code of that name is at several places, the first one.
  [[nodiscard]] int64_t symbol(std::string_view name, std::string_view module);
  /// An address in a function. `space`: that of the user half.
  struct CodeAt {
    SpaceId space;
    Ip ip;
    TimeNs when;
  };
  /// The number of the function at an address, where `name` is Symbol::name. Functions of one name that begin at different places have
  /// different numbers; the name is that of FunctionInfo.
  [[nodiscard]] int64_t symbol(std::string_view name, std::string_view module, const CodeAt& at);

  [[nodiscard]] Status write(Database& database) const;

 private:
  struct Thread {
    int32_t pid, tid;
  };
  struct Comm {
    std::string comm;
    int32_t pid;
    int64_t thread;
    TimeNs first;
    bool has_calls = false;
    std::vector<int64_t> threads;
  };
  struct SymbolRow {
    std::string name;
    int64_t file = 0;
    uint64_t start = 0, size_bytes = 0;
    bool has_start = false;
  };
  struct File {
    std::string name, path, build_id;
  };
  /// Where a function begins in its file, or in memory if it is of none.
  [[nodiscard]] uint64_t start_of(const Symbol& symbol, const CodeAt& at) const;
  [[nodiscard]] Status write_threads(Database& database) const;
  [[nodiscard]] Status write_symbols(Database& database) const;

  const Recording& recording_;
  std::vector<Thread> threads_;
  std::vector<Comm> comms_;
  std::vector<SymbolRow> symbols_;
  std::vector<File> files_;
  std::unordered_map<uint64_t, int64_t> thread_ids_;   ///< by pid and tid
  std::unordered_map<std::string, int64_t> comm_ids_;  ///< by pid and name
  std::unordered_set<uint64_t> comm_threads_;          ///< which threads each name has: both numbers
  std::unordered_map<std::string, int64_t> file_ids_;
  std::unordered_map<std::string, int64_t> symbol_ids_;  ///< by file and name: the first
  std::unordered_map<std::string, int64_t> start_ids_;   ///< by file, start and name
};

}  // namespace ptd::cli
