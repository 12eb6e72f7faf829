// Tables of docs/TABLES.md and switches: see plain_rows.h.
#include "cli/export/plain_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/table/row_reader.h"
#include "analysis/table/tables.h"
#include "cli/export/call_rows.h"

namespace ptd::cli {

namespace {

const char* sql_type(ColumnType type) {
  if (type == ColumnType::text || type == ColumnType::name) return "TEXT";
  return type == ColumnType::binary ? "BLOB" : "INTEGER";
}

bool is_text(ColumnType type) { return type == ColumnType::text || type == ColumnType::name; }

/// The columns that the filters of threads look at.
class WhoFilter {
 public:
  WhoFilter(const ScriptOptions& filter, const std::vector<ColumnInfo>& columns) : filter_(filter) {
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].name == "pid") pid_ = i;
      if (columns[i].name == "tid") tid_ = i;
      if (columns[i].name == "comm") comm_ = i;
    }
  }
  [[nodiscard]] bool wanted(const RowReader& row) const {
    if (pid_ && !among(filter_.pids, static_cast<int32_t>(row.number(*pid_, -1)))) return false;
    if (tid_ && !among(filter_.tids, static_cast<int32_t>(row.number(*tid_, -1)))) return false;
    return filter_.comms.empty() || !comm_ || among(filter_.comms, std::string(row.text(*comm_)));
  }

 private:
  const ScriptOptions& filter_;
  std::optional<size_t> pid_, tid_, comm_;
};

void put(Inserter& out, size_t column, const RowReader& row, ColumnType type) {
  if (!row.has(column)) {
    out.set_null(column);
  } else if (is_text(type)) {
    out.set(column, row.text(column));
  } else if (type == ColumnType::binary) {
    out.set(column, std::as_bytes(std::span(row.text(column))));
  } else {
    out.set(column, row.number(column, 0));
  }
}

/// Opens a table. For a filter of names, one whose rows have a thread but no `comm` gets that column at its end; `columns` leave it out.
Result<std::unique_ptr<Table>> open_filtered(CallInput& input, std::string_view name, TableRequest request,
                                             std::vector<ColumnInfo>& columns) {
  Result<std::unique_ptr<Table>> opened = open_table(input.recording(), name, request);
  if (!opened) return opened;
  columns = (*opened)->columns();
  const auto has = [&columns](std::string_view column) { return std::ranges::find(columns, column, &ColumnInfo::name) != columns.end(); };
  if (input.filter().comms.empty() || !has("tid") || has("comm")) return opened;
  for (const ColumnInfo& column : columns) request.columns.emplace_back(column.name);
  request.columns.emplace_back("comm");
  return open_table(input.recording(), name, request);
}

/// Whether a switch is of the IN record that follows the OUT record of the one before, and names the same thread. The two are as near as
/// the scheduler makes them; the next IN of a thread whose OUT is not recorded is not.
bool is_of_in(const std::vector<ContextTrack::Switch>& switches, size_t at) {
  if (at < 2 || at >= switches.size()) return false;
  const ContextTrack::Switch &in = switches[at], &out = switches[at - 1];
  return in.to == out.to && !(out.to == switches[at - 2].to) && in.time.value - out.time.value <= ContextTrack::kClockErrorNs;
}

}  // namespace

Result<bool> next_row(RowReader& rows) {
  const Result<bool> more = rows.next();
  return !more && more.error().code == ErrorCode::cancelled ? Result<bool>(false) : more;
}

Status write_plain_table(Database& database, CallInput& input, std::string_view name, const TableRequest& request,
                         const std::function<bool()>& stopped) {
  std::vector<ColumnInfo> columns;
  Result<std::unique_ptr<Table>> opened = open_filtered(input, name, request, columns);
  if (!opened) return opened.error();
  RowReader rows(std::move(*opened));
  std::string declared, listed;
  for (const ColumnInfo& column : columns) {
    declared += fmt::format("{}\"{}\" {}", declared.empty() ? "" : ", ", column.name, sql_type(column.type));
    listed += fmt::format("{}\"{}\"", listed.empty() ? "" : ",", column.name);
  }
  const std::string table = fmt::format("ptd_{}", name);
  if (const Status made = database.run(fmt::format("CREATE TABLE {} (id INTEGER NOT NULL PRIMARY KEY, {})", table, declared)); !made)
    return made;
  auto out = Inserter::create(database, table, listed);
  if (!out) return out.error();
  const WhoFilter filter(input.filter(), rows.columns());
  for (uint64_t count = 1; count % kRowsPerCheck != 0 || !stopped(); ++count) {
    const Result<bool> more = next_row(rows);
    if (!more) return more.error();
    if (!more.value()) break;
    if (!filter.wanted(rows)) continue;
    for (size_t i = 0; i < columns.size(); ++i) put(**out, i, rows, columns[i].type);
    if (const Status status = (*out)->insert(); !status) return status;
  }
  return {};
}

namespace {

using ThreadSums = std::map<std::pair<int32_t, int32_t>, CallThread>;  // by tid and pid

// The idle task and unknown threads have one CallThread for each cpu; their row has the sum.
ThreadSums sums_of(const std::vector<CallThread>& threads) {
  ThreadSums sums;
  for (const CallThread& thread : threads) {
    if (thread.fibre != 0) continue;
    const auto [place, is_new] = sums.emplace(std::pair(thread.tid, thread.pid), thread);
    if (is_new) continue;
    CallThread& sum = place->second;
    if (is_bounded(thread.first)) sum.first = is_bounded(sum.first) ? std::min(sum.first, thread.first) : thread.first;
    sum.last = std::max(sum.last, thread.last);
    for (uint64_t CallThread::*member :
         {&CallThread::running_ns, &CallThread::off_cpu_ns, &CallThread::untraced_ns, &CallThread::lost_ns, &CallThread::instructions,
          &CallThread::cycles, &CallThread::gaps, &CallThread::folded, &CallThread::guessed})
      sum.*member += thread.*member;
  }
  return sums;
}

// Writes rows of ptd_threads.
class ThreadRows {
 public:
  ThreadRows(Inserter& out, bool fibres) : out_(out), fibres_(fibres) {}
  // `times`: null if the trace has no flow of the thread.
  Status insert(int32_t pid, int32_t tid, const std::string& comm, const CallThread* times) {
    number(0, pid, pid >= 0);
    number(1, tid, tid >= 0);
    out_.set(2, comm);
    const CallThread none;
    const CallThread& t = times == nullptr ? none : *times;
    const bool ran = times != nullptr, timed = ran && is_bounded(t.last);
    size_t column = 3;
    for (const TimeNs time : {t.first, t.last}) number(column++, time.value, timed);
    for (const uint64_t ns : {t.running_ns, t.off_cpu_ns, t.untraced_ns, t.lost_ns}) number(column++, ns, timed);
    for (const uint64_t count : {t.instructions, t.cycles, t.gaps, t.folded, t.guessed}) number(column++, count, ran);
    if (fibres_) set_fibre(out_, column, t.fibre);
    return out_.insert();
  }

 private:
  template <typename Number>
  void number(size_t column, Number value, bool known) {
    if (known) {
      out_.set(column, static_cast<int64_t>(value));
    } else {
      out_.set_null(column);
    }
  }
  Inserter& out_;
  const bool fibres_;
};

}  // namespace

Status write_threads(Database& database, CallInput& input, const std::vector<CallThread>& threads, bool fibres) {
  ThreadSums sums = sums_of(threads);
  if (Status added = fibres ? database.run("ALTER TABLE ptd_threads ADD COLUMN fibre INTEGER") : Status(); !added) return added;
  const std::string columns =
      "pid,tid,comm,first_ns,last_ns,running_ns,off_cpu_ns,untraced_ns,lost_ns,instructions,cycles,gaps,calls_too_deep,guessed_longjmps";
  auto inserter = Inserter::create(database, "ptd_threads", columns + (fibres ? ",fibre" : ""));
  if (!inserter) return inserter.error();
  ThreadRows out(**inserter, fibres);
  TableRequest request;
  Result<std::unique_ptr<Table>> opened = open_table(input.recording(), "threads", request);
  if (!opened) return opened.error();
  RowReader rows(std::move(*opened));
  const WhoFilter filter(input.filter(), rows.columns());
  for (;;) {
    const Result<bool> more = rows.next();
    if (!more) return more.error();
    if (!more.value()) break;
    const auto pid = static_cast<int32_t>(rows.number(0, -1)), tid = static_cast<int32_t>(rows.number(1, -1));
    auto times = sums.find({tid, pid});
    // A process that ran before the recording began may have a name, but no record of its number.
    if (times == sums.end() && pid < 0) {
      times = sums.lower_bound({tid, INT32_MIN});
      if (times != sums.end() && times->first.first != tid) times = sums.end();
    }
    const bool ran = times != sums.end();
    if (filter.wanted(rows)) {
      const std::string comm(rows.text(2));
      if (Status status = out.insert(ran ? times->second.pid : pid, tid, comm, ran ? &times->second : nullptr); !status) return status;
    }
    if (ran) sums.erase(times);
  }
  for (const auto& [who, thread] : sums) {
    if (Status status = out.insert(who.second, who.first, "", &thread); !status) return status;
  }
  for (const CallThread& thread : threads) {
    if (thread.fibre == 0) continue;
    if (Status status = out.insert(thread.pid, thread.tid, input.recording().comm_at(thread.tid, kTimeMax), &thread); !status)
      return status;
  }
  return {};
}

Result<uint64_t> write_switches(Database& database, ExportNames& names, CallInput& input) {
  const ContextTrack& contexts = input.recording().contexts();
  using Switches = std::vector<ContextTrack::Switch>;
  // The next switch of each cpu, by its time. The first one of a cpu only says who ran.
  std::multimap<std::pair<TimeNs, int32_t>, std::pair<const Switches*, size_t>> order;
  for (const int32_t cpu : contexts.cpus()) {
    const Switches& switches = contexts.switches(cpu);
    if (among(input.filter().cpus, cpu) && switches.size() > 1) order.emplace(std::pair(switches[1].time, cpu), std::pair(&switches, 1));
  }
  auto out = Inserter::create(database, "context_switches", "time,cpu,thread_out_id,comm_out_id,thread_in_id,comm_in_id,flags");
  if (!out) return out.error();
  const ScriptOptions& filter = input.filter();
  const Interval time = filter.times.empty() ? Interval{} : filter.times.front();
  const auto passes = [&](const Context& context, TimeNs when) {
    return among(filter.pids, context.pid) && among(filter.tids, context.tid) &&
           (filter.comms.empty() || among(filter.comms, input.recording().comm_at(context.tid, when)));
  };
  const auto put_thread = [&](const Context& context, TimeNs when, size_t column) {
    const int64_t thread = names.thread(context.pid, context.tid);
    const std::string comm = input.recording().comm_at(context.tid, when);
    (*out)->set(column, thread);
    (*out)->set(column + 1, names.comm(comm, context.pid, thread, when));
  };
  const auto put = [&](int32_t cpu, TimeNs when, const Context& from, const Context& to, int64_t out_flag) {
    if (!time.contains(when) || !(passes(from, when) || passes(to, when))) return Status{};
    (*out)->set(0, when.value);
    (*out)->set(1, cpu);
    put_thread(from, when, 2);
    put_thread(to, when, 4);
    (*out)->set(6, out_flag);
    return (*out)->insert();
  };
  for (uint64_t count = 1; !order.empty() && (count % kRowsPerCheck != 0 || !interrupted()); ++count) {
    auto node = order.extract(order.begin());
    auto& [switches, at] = node.mapped();
    const ContextTrack::Switch& to = (*switches)[at];
    const int32_t cpu = node.key().second;
    Status written;
    if (is_of_in(*switches, at)) {
      written = put(cpu, to.time, (*switches)[at - 2].to, to.to, 0);
    } else if (const Context& from = (*switches)[at - 1].to; !(to.to == from)) {
      written = put(cpu, to.time, from, to.to, 1);
      if (written && !is_of_in(*switches, at + 1)) written = put(cpu, to.time, from, to.to, 0);
    }
    if (!written) return written.error();
    if (++at == switches->size()) continue;
    node.key() = {(*switches)[at].time, cpu};
    order.insert(std::move(node));
  }
  return (*out)->rows();
}

}  // namespace ptd::cli
