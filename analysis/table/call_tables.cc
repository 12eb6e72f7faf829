// The tables made from calls: calls, functions, threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "analysis/names/function_filter.h"
#include "analysis/table/call_columns.h"
#include "analysis/table/tables.h"
#include "ptdecode/call_walk.h"
#include "ptdecode/function_profile.h"
#include "ptdecode/survey.h"
#include "recording/bundle/plan.h"

namespace ptd {

namespace {

constexpr std::string_view kFibreColumn = "fibre";  ///< of calls; a request for it follows fibres

/// What every walk over calls takes from the request.
class CallSource {
 public:
  using OnGroup = std::function<void(uint32_t unit, uint32_t group, uint32_t depth)>;
  CallSource(const Recording& recording, const TableRequest& request, OnGroup on_group = {})
      : request_(request),
        functions_(asks_for_code(request.columns)),
        total_bytes_(trace_bytes(recording, request.streams)),
        cursor_(recording, options_of(request, std::move(on_group)), functions_) {
    if (request.progress) request.progress(0, total_bytes_);
  }
  /// As CallCursor::next(). Errors: those of CallCursor::status(), `cancelled`.
  Result<bool> next(std::span<const CallStep>& steps) {
    if (cursor_.next(steps)) return true;
    if (!cursor_.status().ok()) return cursor_.status().error();
    if (cancelled_) return Error{ErrorCode::cancelled, "the caller cancelled the operation", 0};
    return false;
  }
  /// As Table::has_threads().
  [[nodiscard]] bool has_threads() const { return request_.threads != 1 && request_.steps == nullptr && request_.pass == nullptr; }
  [[nodiscard]] const CallTree& tree() const { return cursor_.tree(); }
  [[nodiscard]] bool timed() const { return cursor_.timed(); }
  [[nodiscard]] bool wanted(const CallStep& step, const CallThread& thread) const {
    const auto matches = [](int32_t filter, int32_t value) { return filter == -1 || filter == value; };
    return matches(request_.cpu, step.cpu) && matches(request_.pid, thread.pid) && matches(request_.tid, thread.tid);
  }
  [[nodiscard]] bool wanted(FunctionId function) { return filter_.wanted(function); }
  [[nodiscard]] const FunctionTable& functions() const { return functions_; }
  /// As CallCursor::add_finished().
  [[nodiscard]] bool add_finished(FunctionProfile& profile) const { return cursor_.add_finished(profile); }

 private:
  CallWalkOptions options_of(const TableRequest& request, OnGroup on_group) {
    CallWalkOptions options;
    options.streams = request.streams;
    options.time = request.time;
    options.threads = request.threads;
    options.steps = request.steps;
    options.all_steps = request.all_steps;
    options.on_group = std::move(on_group);
    options.fibres = std::find(request.columns.begin(), request.columns.end(), kFibreColumn) != request.columns.end();
    options.enters = false;  // a call's row is made where it ends
    if (request.cancelled) options.stopped = [this] { return stopped(); };
    if (request.progress) {
      options.progress = [this](uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        request_.progress(done_bytes_ += bytes, total_bytes_);
      };
    }
    return options;
  }
  bool stopped() {
    const std::lock_guard lock(mutex_);
    if (!cancelled_ && request_.cancelled()) cancelled_ = true;
    return cancelled_;
  }

  const TableRequest request_;
  FunctionTable functions_;
  FunctionFilter filter_{functions_, request_.functions};
  std::mutex mutex_;  // of the callbacks
  std::atomic<bool> cancelled_ = false;
  uint64_t done_bytes_ = 0;
  const uint64_t total_bytes_;
  CallCursor cursor_;  // its threads use what is above
};

/// Calls of a recording, of a plan from the steps of its units, or (open_calls) those that no unit followed from start to end.
class CallsTable : public RowTable<CallRow> {
 public:
  CallsTable(const Recording& recording, const TableRequest& request)
      : source_(recording, request), columns_(recording, source_.functions()) {}
  Status init(const TableRequest& request) {
    std::vector<RowColumn<CallRow>> columns = columns_.all();
    columns.push_back(optional_column<CallRow, uint64_t>(
        kFibreColumn, ColumnType::uint64, [](const CallRow& row) { return row.fibre; },
        [](const CallRow& row) { return row.fibre != kUnknownFibre; }, false));
    return choose(columns, request, "calls");
  }
  [[nodiscard]] bool has_threads() const override { return source_.has_threads(); }

 protected:
  Result<bool> produce(std::vector<CallRow>& rows) override {
    std::span<const CallStep> steps;
    const Result<bool> more = source_.next(steps);
    if (!more || !more.value()) return more;
    for (const CallStep& step : steps) {
      if (step.kind != CallStepKind::leave) continue;
      const CallThread& thread = source_.tree().threads()[step.thread];
      if (source_.wanted(step, thread) && source_.wanted(step.function)) rows.push_back({step, thread.pid, thread.tid, 0, thread.fibre});
    }
    return true;
  }

 private:
  CallSource source_;
  CallColumns columns_;
};

/// A group of calls that a unit followed from start to end.
struct CallGroupRow {
  uint32_t unit = 0, group = 0, depth = 0;
};

class CallGroupsTable : public RowTable<CallGroupRow> {
 public:
  CallGroupsTable(const Recording& recording, const TableRequest& request)
      : source_(recording, request, [this](uint32_t unit, uint32_t group, uint32_t depth) {
          found_.push_back({unit, group, depth});
        }) {}
  Status init(const TableRequest& request) {
    using Row = CallGroupRow;
    std::vector<RowColumn<Row>> columns;
    columns.push_back(value_column<Row, uint32_t>("unit", ColumnType::uint32, [](const Row& row) { return row.unit; }));
    columns.push_back(value_column<Row, uint32_t>("group", ColumnType::uint32, [](const Row& row) { return row.group; }));
    columns.push_back(value_column<Row, uint32_t>("depth", ColumnType::uint32, [](const Row& row) { return row.depth; }));
    return choose(columns, request, "call_groups");
  }

 protected:
  Result<bool> produce(std::vector<CallGroupRow>& rows) override {
    std::span<const CallStep> steps;
    const Result<bool> more = source_.next(steps);
    rows.insert(rows.end(), found_.begin(), found_.end());
    found_.clear();
    return more;
  }

 private:
  std::vector<CallGroupRow> found_;
  CallSource source_;
};

struct FunctionRow {
  FunctionId id = kNoFunction;
  const FunctionTotals* totals = nullptr;
};

class FunctionsTable : public RowTable<FunctionRow> {
 public:
  FunctionsTable(const Recording& recording, const TableRequest& request)
      : recording_(recording), request_(request), source_(std::make_unique<CallSource>(recording, request)) {
    names_ = std::make_unique<FunctionNames>(source_->functions());
  }

  Status init(const TableRequest& request) {
    using Row = FunctionRow;
    std::vector<RowColumn<Row>> columns;
    const auto number = [&columns](std::string_view name, uint64_t FunctionTotals::*member) {
      columns.push_back(value_column<Row, uint64_t>(name, ColumnType::uint64, [member](const Row& row) { return row.totals->*member; }));
    };
    const auto duration = [&columns](std::string_view name, uint64_t FunctionTotals::*member) {
      columns.push_back(optional_column<Row, uint64_t>(
          name, ColumnType::uint64, [member](const Row& row) { return row.totals->*member; },
          [](const Row& row) { return row.totals->has_times(); }));
    };
    const auto quantile = [&columns](std::string_view name, double share) {
      columns.push_back(optional_column<Row, uint64_t>(
          name, ColumnType::uint64, [share](const Row& row) { return row.totals->durations.quantile(share); },
          [](const Row& row) { return row.totals->durations.count() != 0; }));
    };
    columns.push_back(name_column<Row>("function", names_->functions, [this](const Row& row) { return names_->of(row.id).function; }));
    columns.push_back(name_column<Row>("module", names_->modules, [this](const Row& row) { return names_->of(row.id).module; }));
    number("calls", &FunctionTotals::calls);
    columns.push_back(value_column<Row, uint64_t>("partial", ColumnType::uint64, [](const Row& row) { return row.totals->partial(); }));
    number("self_instructions", &FunctionTotals::self_instructions);
    number("total_instructions", &FunctionTotals::instructions);
    duration("self_ns", &FunctionTotals::self_ns);
    duration("total_ns", &FunctionTotals::total_ns);
    duration("off_cpu_ns", &FunctionTotals::off_cpu_ns);
    duration("untraced_ns", &FunctionTotals::untraced_ns);
    duration("lost_ns", &FunctionTotals::lost_ns);
    number("self_cycles", &FunctionTotals::self_cycles);
    number("total_cycles", &FunctionTotals::cycles);
    quantile("p50_ns", 0.5);
    quantile("p99_ns", 0.99);
    columns.push_back(optional_column<Row, uint64_t>(
        "max_ns", ColumnType::uint64, [](const Row& row) { return row.totals->durations.max(); },
        [](const Row& row) { return row.totals->durations.count() != 0; }));
    number("no_start", &FunctionTotals::no_start);
    number("no_end", &FunctionTotals::no_end);
    number("estimated", &FunctionTotals::estimated);
    add_code_columns(columns, *names_, [](const Row& row) { return row.id; });
    return choose(columns, request, "functions");
  }
  [[nodiscard]] bool has_threads() const override { return source_->has_threads(); }

 protected:
  Result<bool> produce(std::vector<FunctionRow>& rows) override {
    Result<bool> exact = read();
    if (exact.ok() && !exact.value()) {  // rare: every step is followed then
      request_.all_steps = true;
      profile_ = {};
      source_ = std::make_unique<CallSource>(recording_, request_);
      names_->use(source_->functions());
      exact = read();
    }
    if (!exact) return exact;
    const auto add = [&](FunctionId id, const FunctionTotals& totals) {
      if (totals.met() && source_->wanted(id)) rows.push_back({id, &totals});
    };
    for (FunctionId id = 0; id < profile_.functions().size(); ++id) add(id, profile_.functions()[id]);
    add(kNoFunction, profile_.untraced());
    // The order of `ptdecode functions`: own time, or instructions where there are no times, then names, because numbers of functions
    // depend on which stream met one first.
    std::sort(rows.begin(), rows.end(), [this](const FunctionRow& a, const FunctionRow& b) {
      const auto key = [this](const FunctionRow& row) {
        const uint64_t own = source_->timed() ? row.totals->self_ns : row.totals->self_instructions;
        return std::tuple(~own, row.id == kNoFunction ? std::string_view() : names_->name(row.id), names_->module(row.id));
      };
      return key(a) < key(b);
    });
    return false;
  }

 private:
  /// Fills profile_. False: its percentiles are not exact enough.
  Result<bool> read() {
    std::vector<CallStep> wanted;
    std::span<const CallStep> steps;
    Result<bool> more = source_->next(steps);
    for (; more.ok() && more.value(); more = source_->next(steps)) {
      wanted.clear();
      for (const CallStep& step : steps) {
        if (step.kind == CallStepKind::leave && source_->wanted(step, source_->tree().threads()[step.thread])) wanted.push_back(step);
      }
      profile_.add(wanted);
    }
    if (!more) return more;
    return source_->add_finished(profile_) || request_.steps == nullptr || request_.all_steps;
  }

  const Recording& recording_;
  TableRequest request_;
  std::unique_ptr<CallSource> source_;
  std::unique_ptr<FunctionNames> names_;
  FunctionProfile profile_;
};

/// Returns the threads that the records name, switch to or have a stream of, by tid. Those that no record names may have no name.
std::vector<ThreadInfo> threads_of(const Recording& recording) {
  std::set<std::pair<int32_t, int32_t>> seen, known;  // (tid, pid)
  const ContextTrack& contexts = recording.contexts();
  const auto see = [&seen](const std::vector<ContextTrack::Switch>& track) {
    for (const ContextTrack::Switch& each : track) seen.emplace(each.to.tid, each.to.pid);
  };
  for (const int32_t cpu : contexts.cpus()) see(contexts.switches(cpu));
  for (const int32_t tid : contexts.threads()) see(contexts.thread_changes(tid));
  for (const StreamInfo& stream : recording.streams()) seen.emplace(stream.tid, -1);
  std::vector<ThreadInfo> threads = survey_of(recording).threads;
  for (const ThreadInfo& thread : threads) known.emplace(thread.tid, thread.pid);
  for (auto at = seen.rbegin(); at != seen.rend(); ++at) {  // of one tid, a known pid comes first
    const auto [tid, pid] = *at;
    const auto same = known.lower_bound({tid, std::numeric_limits<int32_t>::min()});
    if (tid < 0 || (pid < 0 && same != known.end() && same->first == tid) || !known.emplace(tid, pid).second) continue;
    threads.push_back({pid, tid, recording.comm_at(tid, kTimeMax)});
  }
  std::sort(threads.begin(), threads.end(),
            [](const ThreadInfo& a, const ThreadInfo& b) { return std::pair(a.tid, a.pid) < std::pair(b.tid, b.pid); });
  return threads;
}

struct ThreadRow {
  ThreadInfo info;
  CallThread times;
};

class ThreadsTable : public HeldTable<ThreadRow> {
 public:
  ThreadsTable(const Recording& recording, const TableRequest& request)
      : HeldTable(recording), request_(request), source_(recording, request) {}

  Status init(const TableRequest& request) {
    using Row = ThreadRow;
    std::vector<RowColumn<Row>> columns;
    columns.push_back(optional_column<Row, int32_t>(
        "pid", ColumnType::int32, [](const Row& row) { return row.info.pid; }, [](const Row& row) { return row.info.pid >= 0; }));
    columns.push_back(optional_column<Row, int32_t>(
        "tid", ColumnType::int32, [](const Row& row) { return row.info.tid; }, [](const Row& row) { return row.info.tid >= 0; }));
    columns.push_back(text_column<Row>("comm", ColumnType::text, [](const Row& row) { return std::string_view(row.info.comm); }));
    // The following columns need a decode of the flow, so they are filled only on request.
    const auto time = [&columns](std::string_view name, TimeNs CallThread::*member) {
      columns.push_back(optional_column<Row, int64_t>(
          name, ColumnType::int64, [member](const Row& row) { return (row.times.*member).value; },
          [member](const Row& row) { return is_bounded(row.times.*member); }, false));
    };
    const auto number = [&columns](std::string_view name, uint64_t CallThread::*member) {
      columns.push_back(value_column<Row, uint64_t>(
          name, ColumnType::uint64, [member](const Row& row) { return row.times.*member; }, false));
    };
    const auto duration = [&columns](std::string_view name, uint64_t CallThread::*member) {
      columns.push_back(optional_column<Row, uint64_t>(
          name, ColumnType::uint64, [member](const Row& row) { return row.times.*member; },
          [](const Row& row) { return is_bounded(row.times.last); }, false));
    };
    time("first_ns", &CallThread::first);
    time("last_ns", &CallThread::last);
    duration("running_ns", &CallThread::running_ns);
    duration("off_cpu_ns", &CallThread::off_cpu_ns);
    duration("untraced_ns", &CallThread::untraced_ns);
    duration("lost_ns", &CallThread::lost_ns);
    number("instructions", &CallThread::instructions);
    number("cycles", &CallThread::cycles);
    number("gaps", &CallThread::gaps);
    number("calls_too_deep", &CallThread::folded);
    number("guessed_longjmps", &CallThread::guessed);
    return choose(columns, request, "threads");
  }
  [[nodiscard]] bool has_threads() const override { return needs_calls() && source_.has_threads(); }

 protected:
  Result<bool> produce(std::vector<ThreadRow>& rows) override {
    for (ThreadInfo& info : threads_of(recording_)) rows.push_back({std::move(info), {}});
    if (Status status = needs_calls() ? add_calls(rows) : Status(); !status) return status.error();
    std::erase_if(rows, [this](const ThreadRow& row) {
      return (request_.pid != -1 && request_.pid != row.info.pid) || (request_.tid != -1 && request_.tid != row.info.tid);
    });
    return false;
  }

 private:
  [[nodiscard]] bool needs_calls() const {
    constexpr std::array kRecorded = {std::string_view("pid"), std::string_view("tid"), std::string_view("comm")};
    const std::vector<ColumnInfo> asked = columns();
    return std::any_of(asked.begin(), asked.end(), [&](const ColumnInfo& column) {
      return std::find(kRecorded.begin(), kRecorded.end(), column.name) == kRecorded.end();
    });
  }
  /// Adds the times and counts of all threads.
  Status add_calls(std::vector<ThreadRow>& rows) {
    if (Status status = request_.steps == nullptr ? check_units(recording_) : Status(); !status) return status.error();
    std::span<const CallStep> steps;
    Result<bool> more = source_.next(steps);
    while (more.ok() && more.value()) more = source_.next(steps);
    if (!more) return more.error();
    for (const CallThread& thread : source_.tree().threads()) add(thread, rows);
    return {};
  }
  /// The idle task and unknown threads have one CallThread for each cpu; their row has the sum.
  static void add(const CallThread& thread, std::vector<ThreadRow>& rows) {
    auto at = std::find_if(rows.begin(), rows.end(), [&](const ThreadRow& row) {
      return row.info.tid == thread.tid && (row.info.pid == thread.pid || thread.pid == -1 || row.info.pid == -1);
    });
    if (at == rows.end()) at = rows.insert(rows.end(), ThreadRow{{thread.pid, thread.tid, {}}, {}});
    if (at->info.pid == -1) at->info.pid = thread.pid;
    CallThread& sum = at->times;
    if (is_bounded(thread.first)) sum.first = is_bounded(sum.first) ? std::min(sum.first, thread.first) : thread.first;
    sum.last = std::max(sum.last, thread.last);
    for (uint64_t CallThread::*member : {&CallThread::running_ns, &CallThread::off_cpu_ns, &CallThread::untraced_ns, &CallThread::lost_ns,
                                         &CallThread::instructions, &CallThread::cycles, &CallThread::gaps, &CallThread::forgotten,
                                         &CallThread::uncertain, &CallThread::guessed, &CallThread::folded})
      sum.*member += thread.*member;
  }

  const TableRequest request_;
  CallSource source_;
};

}  // namespace

Result<std::unique_ptr<Table>> open_call_table(const Recording& recording, std::string_view name, const TableRequest& request) {
  const bool units = name == "open_calls" || name == "call_groups";
  if (!units && name != "calls" && name != "functions" && name != "threads") return std::unique_ptr<Table>();
  if (units && request.steps == nullptr)
    return Error{ErrorCode::invalid_argument, "the table '" + std::string(name) + "' is made from the steps of the units of a plan", 0};
  TableRequest own = request;
  // Filters choose calls, which groups have not.
  const bool filtered = request.cpu != -1 || request.pid != -1 || request.tid != -1;
  own.all_steps = name == "calls" || (name == "functions" && filtered);
  if (name == "functions") return make_table<FunctionsTable>(own, recording, own);
  if (name == "threads") return make_table<ThreadsTable>(own, recording, own);
  if (name == "call_groups") return make_table<CallGroupsTable>(own, recording, own);
  return make_table<CallsTable>(own, recording, own);
}

}  // namespace ptd
