// write_database(): see exporter.h.
#include "cli/export/exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "cli/export/call_rows.h"
#include "cli/export/plain_rows.h"
#include "cli/export/sample_rows.h"
#include "cli/export/schema.h"
#include "cli/options/exit_status.h"
#include "cli/options/progress.h"
#include "cli/options/whole_file.h"
#include "cli/report/missing_report.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "ptdecode/ptdecode.h"
#include "recording/data/other_events.h"

namespace ptd::cli {

namespace {

constexpr std::string_view kComplete = "complete";  // in ptd_info

/// Writes the tables that are wanted, one after the other.
class Export {
 public:
  Export(const ExportWords& words, CallInput& input, Database& database, std::set<std::string> tables)
      : words_(words), input_(input), database_(database), names_(input.recording()), tables_(std::move(tables)) {
    for (uint32_t i = 0; i < input.recording().streams().size(); ++i) {
      if (among(input.filter().cpus, input.recording().streams()[i].cpu)) request_.streams.push_back(i);
    }
    if (!input.filter().times.empty()) request_.time = input.filter().times.front();
    request_.path = words.calls.input.source();
    request_.cancelled = interrupted;
    request_.threads = words.calls.threads;
  }
  /// Returns the exit status.
  int run() {
    stop_on_interrupt();
    if (const Status made = database_.run(schema_tables()); !made) return report_error(made.error());
    const int status = write_calls();
    if (status != kExitOk && status != kExitInterrupted) return status;
    ended_ = status == kExitInterrupted;
    for (const auto& write : {&Export::write_samples, &Export::write_plain}) {
      if (const Status done = (this->*write)(); !done) return report_error(done.error());
      ended_ = ended_ || interrupted();
    }
    for (const auto& write : {&Export::write_info, &Export::complete}) {
      if (const Status done = (this->*write)(); !done) return report_error(done.error());
    }
    return ended_ ? kExitInterrupted : kExitOk;
  }
  [[nodiscard]] std::string summary() const {
    std::string text;
    if (calls_ != 0) text += counted(calls_, "call");
    if (branches_ != 0) text += (text.empty() ? "" : ", ") + counted(branches_, "branch", "branches");
    if (!text.empty()) return text;
    if (has_calls_or_branches())
      return !tables_.contains("branches") ? "no calls" : !tables_.contains("calls") ? "no branches" : "no calls or branches";
    return other_rows_.empty() ? "no rows" : other_rows_;
  }
  /// Whether anything matched the filters of threads.
  [[nodiscard]] bool any() const { return calls_ + branches_ + others_ != 0; }
  [[nodiscard]] uint64_t left_out() const { return left_out_; }

 private:
  /// Returns whether rows of a table are to be written; after Ctrl-C, none are.
  [[nodiscard]] bool wants(const char* table) const { return !ended_ && tables_.contains(table); }

  [[nodiscard]] bool has_calls_or_branches() const { return tables_.contains("calls") || tables_.contains("branches"); }

  /// Counts the rows of tables for the summary. Those that Ctrl-C prevented have none.
  void count_other_rows() {
    for (const std::string& table : tables_) {
      // The numbers of a table's rows begin with 1. Those of the view ptd_samples are of a table with other rows.
      const Result<int64_t> rows =
          database_.number(fmt::format("SELECT {} FROM ptd_{}", table == "samples" ? "count(*)" : "max(id)", table));
      if (!rows) continue;
      other_rows_ += fmt::format("{}{} {}", other_rows_.empty() ? "" : ", ", *rows, table);
      // These are of no thread.
      if (table != "findings" && table != "sections" && table != "versions") others_ += static_cast<uint64_t>(*rows);
    }
  }

  int write_calls() {
    for (const char* table : {"functions", "threads", "branches", "samples"}) {
      if (!tables_.contains(table)) empty_.insert(fmt::format("ptd_{}", table));
    }
    const bool followed = wants("calls") || wants("functions") || wants("threads");
    if (!followed) return empty_.insert("calls"), kExitOk;
    auto rows = CallRows::create(database_, names_, input_,
                                 {.calls = wants("calls"), .functions = wants("functions"), .fibres = words_.calls.fibres});
    if (!rows) return report_error(rows.error());
    Status written;
    std::vector<CallThread> threads;
    const int status = input_.walk(words_.calls, [&](std::span<const CallStep> steps, const CallTree& tree) {
      written = (*rows)->take(steps, tree);
      for (uint32_t i = 0; tree.finished() && i < tree.threads().size(); ++i) {
        if (input_.matched(i)) threads.push_back(tree.threads()[i]);
      }
      return written.ok();
    });
    if (status != kExitOk && status != kExitInterrupted) return status;
    if (written) written = (*rows)->finish();
    if (written && wants("threads")) written = write_threads(database_, input_, threads, words_.calls.fibres);
    if (!written) return report_error(written.error());
    calls_ = (*rows)->calls();
    left_out_ = (*rows)->left_out();
    if (!wants("calls")) empty_.insert("calls");
    return status;
  }

  Status write_samples() {
    auto rows = SampleRows::create(database_, names_, input_);
    if (!rows) return rows.error();
    Progress progress("writing branches", !words_.calls.input.quiet && !is_terminal(1));
    TableRequest request = request_;
    request.progress = [&progress](uint64_t done, uint64_t total) {
      progress.set_total(total);
      progress.set(done);
    };
    for (const char* table : {"branches", "events"}) {
      if (!wants(table)) continue;
      if (const Status added = (*rows)->add(table, request); !added) return added;
      request.progress = {};
    }
    if (wants("samples") && input_.recording().from_perf()) {
      if (const Status added = (*rows)->add("samples", request_); !added) return added;
    }
    const Status written = (*rows)->write(interrupted);
    progress.finish();
    if (!written) return written;
    branches_ = (*rows)->branch_count();
    empty_.merge((*rows)->empty_tables());
    if (wants("branches") || wants("samples")) empty_.erase("samples");
    return {};
  }

  Status write_plain() {
    for (const char* table : {"blocks", "events", "gaps", "findings", "sections", "versions"}) {
      if (!wants(table)) continue;
      if (const Status written = write_plain_table(database_, input_, table, request_, interrupted); !written) return written;
    }
    if (ended_) return {};
    const Result<uint64_t> switches = write_switches(database_, names_, input_);
    if (!switches) return switches.error();
    if (switches.value() == 0) empty_.insert("context_switches");
    return {};
  }

  Status write_info() {
    auto info = Inserter::create(database_, "ptd_info", "key,value");
    if (!info) return info.error();
    std::vector<std::pair<std::string_view, std::string>> facts = {{"tables_version", "1"},
                                                                   {"ptdecode", ptd_version()},
                                                                   {"recording", words_.calls.input.source()},
                                                                   {"description", input_.recording().description()},
                                                                   {kComplete, "0"},
                                                                   {"tables", fmt::format("{}", fmt::join(tables_, ","))}};
    const CallWords& calls = words_.calls;
    for (const auto& [key, value] :
         {std::pair("cpu", &calls.cpus), {"pid", &calls.pids}, {"tid", &calls.tids}, {"comm", &calls.comms}, {"time", &calls.time}}) {
      if (!value->empty()) facts.emplace_back(key, *value);
    }
    if (request_.time.first != kTimeMin) facts.emplace_back("time_first_ns", std::to_string(request_.time.first.value));
    if (request_.time.last != kTimeMax) facts.emplace_back("time_last_ns", std::to_string(request_.time.last.value));
    if (calls.fibres) facts.emplace_back("fibres", "1");
    if (tables_.contains("calls")) {
      facts.emplace_back("calls_too_deep", std::to_string(input_.folded()));
      facts.emplace_back("guessed_longjmps", std::to_string(input_.guessed()));
      facts.emplace_back("stacks_abandoned", std::to_string(input_.forgotten()));
      facts.emplace_back("uncounted_loops", std::to_string(input_.uncounted()));
    }
    for (const auto& [key, value] : facts) {
      (*info)->set(0, key);
      const std::string text = valid_utf8(value);
      (*info)->set(1, text);
      if (const Status written = (*info)->insert(); !written) return written;
    }
    return {};
  }

  Status complete() {
    if (const Status written = names_.write(database_); !written) return written;
    if (const Status written = database_.run(schema_views(empty_, words_.calls.fibres)); !written) return written;
    if (!has_calls_or_branches()) count_other_rows();
    if (const Status written = database_.commit(); !written) return written;
    std::vector<std::string> last = schema_indexes(empty_);
    last.push_back(fmt::format("UPDATE ptd_info SET value = '1' WHERE key = '{}'", kComplete));
    for (size_t i = 0; i < last.size() && !ended_; ++i) {
      const Result<bool> written = database_.run_unless(last[i], interrupted);
      if (!written) return written.error();
      ended_ = !written.value();
    }
    return {};
  }

  const ExportWords& words_;
  CallInput& input_;
  Database& database_;
  ExportNames names_;
  const std::set<std::string> tables_;
  TableRequest request_;
  std::set<std::string> empty_;  ///< tables to drop: not asked for, or without rows where perf's viewer expects no table
  uint64_t calls_ = 0, branches_ = 0, left_out_ = 0;
  uint64_t others_ = 0;     ///< rows of other tables that filters apply to, if neither calls nor branches are asked for
  std::string other_rows_;  ///< "0 gaps, 2 findings"
  bool ended_ = false;      ///< by Ctrl-C
};

Result<std::set<std::string>> tables_of(const std::string& words) {
  std::set<std::string> tables;
  for (size_t start = 0; start <= words.size();) {
    const size_t comma = std::min(words.find(',', start), words.size());
    const std::string name = words.substr(start, comma - start);
    const std::string known = fmt::format("blocks,{}", kDefaultTables);
    if (name.empty() || fmt::format(",{},", known).find(fmt::format(",{},", name)) == std::string::npos)
      return Error{ErrorCode::invalid_argument, fmt::format("--tables: there is no table '{}'; the tables are {}", name, known), 0};
    tables.insert(name);
    if (name == "edges") tables.insert("branches");  // they are counted from these
    start = comma + 1;
  }
  return tables;
}

// The samples of a recording are read from its file. Without a word on tables, those of a pipe are left out.
Status leave_out_samples(const ExportWords& words, std::set<std::string>& tables) {
  if (words.calls.input.is_raw() || !tables.contains("samples") || !is_read_once(words.calls.input.path)) return {};
  if (words.tables != kDefaultTables)
    return bad_option(
        "--tables: the samples of a recording from a pipe cannot be read; write it to a file, or name other tables than samples");
  say_on_error("ptdecode: warning: the samples of a recording from a pipe are left out; to have them, write it to a file first\n");
  tables.erase("samples");
  return {};
}

}  // namespace

int write_database(const ExportWords& words) {
  Result<std::set<std::string>> tables = tables_of(words.tables);
  if (!tables) return report_error(tables.error());
  if (const Status possible = leave_out_samples(words, *tables); !possible) return report_error(possible.error());
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(words.calls);
  if (!opened) return report_error(opened.error());
  const Error no_stream{ErrorCode::bad_output, "export: a database is no stream of bytes: -o names a file", 0};
  std::error_code ignored;
  if (std::filesystem::is_fifo(words.output, ignored)) return report_error(no_stream);  // to open it would wait for a reader
  Result<std::unique_ptr<WholeFile>> file = WholeFile::open(words.output);
  if (!file) return report_error(file.error());
  if ((*file)->straight()) return report_error(no_stream);
  auto database = Database::create(fmt::format("/proc/self/fd/{}", (*file)->fd()), words.output);
  if (!database) return report_error(database.error());
  Export all(words, **opened, **database, std::move(*tables));
  const int status = all.run();
  if (status != kExitOk && status != kExitInterrupted) return status;
  database->reset();
  const int matched = (*opened)->say_summary(words.calls, all.any() || status == kExitInterrupted);
  if (matched != kExitOk) return matched;  // an existing file is kept
  if (keeps_earlier_file(words.output, status)) return status;
  if (const Status written = (*file)->finish(); !written) return report_error(written.error());
  if (!words.calls.input.quiet) {
    const char* const cut = status == kExitInterrupted ? "; interrupted: it is incomplete" : "";
    say_on_error(fmt::format("ptdecode: {}: {}{}\n", shown(words.output), all.summary(), cut));
  }
  if (all.left_out() != 0) say_on_error("ptdecode: " + left_out_text(all.left_out()) + "\n");
  if (status != kExitOk) return status;
  return strict_status(words.calls.input.strict, (*opened)->gaps(), (*opened)->recording());
}

}  // namespace ptd::cli
