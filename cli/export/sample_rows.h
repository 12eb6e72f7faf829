// SampleRows: the table of an exported database with branches, events of the trace and samples of other events, in the order of time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/table/row_reader.h"
#include "cli/calls/call_input.h"
#include "cli/export/database.h"
#include "cli/export/export_names.h"

namespace ptd::cli {

/// Writes samples, selected_events, branch_types and the tables of single events (ptwrite, cbr, ...) that perf's export script makes. Not
/// thread-safe.
class SampleRows {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SampleRows>> create(Database& database, ExportNames& names, CallInput& input);
  /// Adds rows of the table `branches`, `events` or `samples`.
  [[nodiscard]] Status add(std::string_view table, const TableRequest& request);
  /// Writes all rows of the added tables. `stopped` ends it early.
  [[nodiscard]] Status write(const std::function<bool()>& stopped);
  [[nodiscard]] uint64_t branch_count() const { return branches_; }
  /// The names of the tables without rows.
  [[nodiscard]] std::set<std::string> empty_tables() const;

 private:
  /// Numbers of a function and its file. Code without a symbol has a file, too.
  struct Code {
    int64_t symbol = 0, file = 0;
  };
  /// A function as the columns of names and addresses tell it. Code without a symbol has no space and start.
  struct CodeKey {
    int32_t symbol = -1, module = -1;  ///< indexes
    uint32_t space = 0;
    int64_t start = 0;
    friend bool operator==(const CodeKey&, const CodeKey&) = default;
  };
  struct CodeHash {
    size_t operator()(const CodeKey& key) const {
      const uint64_t names = static_cast<uint64_t>(static_cast<uint32_t>(key.module)) << 32 | static_cast<uint32_t>(key.symbol);
      return (names ^ static_cast<uint64_t>(key.start) ^ (uint64_t{key.space} << 40)) * 0x9E3779B97F4A7C15ULL;
    }
  };
  struct KnownCode {
    CodeKey key;
    Code code;
  };
  /// One of the tables, at its next row.
  struct Source {
    enum Kind : uint8_t { branches, events, samples };
    explicit Source(Kind source_kind, RowReader source_rows) : kind(source_kind), rows(std::move(source_rows)) {}
    Kind kind;
    RowReader rows;
    int64_t time = 0;
    // Numbers of what the columns of names hold, by their index.
    std::vector<int64_t> kinds;  ///< of branches, or of events; of samples by number of the event
    std::array<std::unordered_map<CodeKey, Code, CodeHash>, 2> codes;
    std::array<KnownCode, 2> last_code;
  };
  /// A row of selected_events.
  struct Event {
    std::string name;
    std::optional<std::string> sampled;  ///< name in the recording of an event of samples, nothing for events of the trace
  };
  struct Who {
    int32_t pid = -1, tid = -1, comm = -1;
    bool wanted = false;
    int64_t thread = 0, comm_id = 0;
  };
  SampleRows(Database& database, ExportNames& names, CallInput& input) : database_(database), names_(names), input_(input) {}
  [[nodiscard]] Result<bool> advance(Source& source, const std::function<bool()>& stopped);
  [[nodiscard]] Status put(Source& source);
  const Who& who(Source& source);
  int64_t kind_of(Source& source);
  int64_t add_event(std::string name, std::optional<std::string> sampled = std::nullopt);
  int64_t put_place(Source& source, size_t end, size_t first_column);
  [[nodiscard]] Status put_event(const Source& source, const std::string& event);
  [[nodiscard]] Status write_lists();

  Database& database_;
  ExportNames& names_;
  CallInput& input_;
  std::unique_ptr<Inserter> samples_;
  std::map<std::string, std::unique_ptr<Inserter>> events_;  ///< of the tables of single events
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<Event> events_listed_;             ///< by id, from 1
  int64_t branches_event_ = 0;                   ///< id of the event of branches, 0: no row had it
  std::map<std::string, int64_t> branch_flags_;  ///< kinds of branches that were met
  Who who_;
  const Source* who_of_ = nullptr;
  int64_t last_id_ = 0;
  uint64_t branches_ = 0;
};

}  // namespace ptd::cli
