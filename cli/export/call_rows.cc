// CallRows: see call_rows.h.
#include "cli/export/call_rows.h"

#include <algorithm>

#include "analysis/table/column.h"
#include "cli/calls/function_rows.h"

namespace ptd::cli {

namespace {

constexpr int64_t kFirstPath = 1;  // perf's number of the path that all others are below: CallPaths::kRoot
constexpr size_t kRowsAtOnce = size_t{1} << 16;
constexpr const char* kCallColumns =
    "id,thread_id,comm_id,call_path_id,call_time,return_time,parent_call_path_id,flags,parent_id,insn_count,cyc_count,call_cpu,kind,depth,"
    "self_ns,off_cpu_ns,untraced_ns,lost_ns,self_instructions,self_cycles,start_seen,end_seen,estimated,call_symbol_id";

constexpr size_t kFirstDuration = 14, kDurations = 4;  // self_ns and those after it

constexpr const char* kFibreColumn = "ALTER TABLE calls ADD COLUMN fibre INTEGER";

/// perf's: 1: no call was seen, 2: no return, 6: entered by a jump.
int64_t flags_of(const CallStep& step) {
  if (step.frame == FrameKind::tail) return 6;
  const bool started = (step.flags & (kCallNoStart | kCallMiddle)) == 0, ended = (step.flags & kCallCut) == 0;
  return (started ? 0 : 1) | (ended ? 0 : 2);
}

}  // namespace

Result<std::unique_ptr<CallRows>> CallRows::create(Database& database, ExportNames& names, CallInput& input, CallRowsWanted wanted) {
  std::unique_ptr<CallRows> made(new CallRows(database, names, input, wanted));
  if (!wanted.calls) return made;
  if (Status added = wanted.fibres ? database.run(kFibreColumn) : Status(); !added) return added.error();
  auto calls = Inserter::create(database, "calls", std::string(kCallColumns) + (wanted.fibres ? ",fibre" : ""));
  if (!calls) return calls.error();
  made->calls_ = std::move(*calls);
  return made;
}

CallRows::Thread& CallRows::thread_of(const CallStep& step, const CallTree& tree) {
  if (step.thread >= threads_.size()) threads_.resize(tree.threads().size());
  Thread& thread = threads_[step.thread];
  if (thread.id == 0) thread.id = names_.thread(tree.threads()[step.thread].pid, tree.threads()[step.thread].tid);
  thread.fibre = tree.threads()[step.thread].fibre;
  return thread;
}

void CallRows::leave(const CallStep& step, const CallTree& tree) {
  const std::optional<OpenCalls::Ended> ended = open_.take(step);
  if (!ended) return;
  Thread& thread = thread_of(step, tree);
  if (!thread.named.contains(step.start)) {
    const std::string& name = input_.comm(step, tree);
    thread.named = input_.named(step);
    thread.comm = names_.comm(name, tree.threads()[step.thread].pid, thread.id, step.start);
    names_.add_calls_of(thread.comm);
  }
  rows_.push_back({step, *ended, thread.id, thread.comm, thread.fibre});
}

Status CallRows::take(std::span<const CallStep> steps, const CallTree& tree) {
  size_t first = 0;  // of those that are wanted and not in the profile yet
  for (size_t i = 0; i < steps.size(); ++i) {
    const CallStep& step = steps[i];
    if (!input_.wanted(step, tree)) {
      profile_.add(steps.subspan(first, i - first));
      first = i + 1;
    } else if (calls_ == nullptr) {
      continue;
    } else if (step.kind == CallStepKind::enter) {
      open_.take(step);
    } else if (step.kind == CallStepKind::leave) {
      leave(step, tree);
    }
  }
  profile_.add(steps.subspan(first));
  return rows_.size() < kRowsAtOnce ? Status{} : write();
}

Status CallRows::write() {
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.of.call.number < b.of.call.number; });
  for (const Row& row : rows_) {
    const CallStep& step = row.step;
    const bool started = (step.flags & (kCallNoStart | kCallMiddle)) == 0, ended = (step.flags & kCallCut) == 0;
    const auto number = [](uint64_t value) { return static_cast<int64_t>(value); };
    const int64_t values[] = {row.of.call.number,
                              row.thread,
                              row.comm,
                              row.of.call.path + kFirstPath,
                              number(step.start.value),
                              number(step.time.value),
                              row.of.caller.path + kFirstPath,
                              flags_of(step),
                              row.of.caller.number,
                              number(step.instructions),
                              number(step.cycles),
                              step.cpu,
                              static_cast<int64_t>(step.frame),
                              step.depth,
                              number(step.self_ns),
                              number(step.off_cpu_ns),
                              number(step.untraced_ns),
                              number(step.lost_ns),
                              number(step.self_instructions),
                              number(step.self_cycles),
                              started ? 1 : 0,
                              ended ? 1 : 0,
                              (step.flags & kCallEstimated) != 0 ? 1 : 0,
                              symbol_of(step.function)};
    size_t column = 0;
    for (const int64_t value : values) calls_->set(column++, value);
    for (size_t i = kFirstDuration; (step.flags & kCallUndated) != 0 && i < kFirstDuration + kDurations; ++i) calls_->set_null(i);
    if (wanted_.fibres) set_fibre(*calls_, column, row.fibre);
    if (const Status status = calls_->insert(); !status) return status;
  }
  rows_.clear();
  return {};
}

int64_t CallRows::symbol_of(FunctionId function) {
  const size_t index = function == kNoFunction ? 0 : size_t{function} + 1;
  if (index >= symbols_.size()) symbols_.resize(std::max(index + 1, symbols_.size() * 2));
  int64_t& symbol = symbols_[index];
  if (symbol != 0) return symbol;
  if (function == kNoFunction) return symbol = names_.symbol(function_text(input_.functions(), function), "");
  const FunctionInfo& info = input_.functions().info(function);
  return symbol = names_.symbol(info.name, info.module);
}

Status CallRows::write_paths() {
  if (calls_ == nullptr) return {};
  auto paths = Inserter::create(database_, "call_paths", "id,parent_id,symbol_id,ip");
  if (!paths) return paths.error();
  Status status = database_.run("INSERT INTO call_paths VALUES (0,0,0,0),(1,0,0,0)");
  const std::vector<CallPaths::Path>& known = open_.paths().paths();
  for (size_t i = CallPaths::kRoot + 1; i < known.size() && status; ++i) {
    (*paths)->set(0, static_cast<int64_t>(i) + kFirstPath);
    (*paths)->set(1, known[i].parent + kFirstPath);
    (*paths)->set(2, symbol_of(known[i].function));
    (*paths)->set(3, int64_t{0});
    status = (*paths)->insert();
  }
  return status;
}

Status CallRows::write_functions() {
  auto functions =
      Inserter::create(database_, "ptd_functions",
                       "function,module,calls,partial,self_instructions,total_instructions,self_ns,total_ns,off_cpu_ns,untraced_ns,lost_ns,"
                       "self_cycles,total_cycles,p50_ns,p99_ns,max_ns,no_start,no_end,estimated");
  if (!functions) return functions.error();
  constexpr size_t kFirstSum = 6, kSums = 5;  // self_ns and those after it
  Inserter& out = **functions;
  for (const FunctionRow& function : ranked({"self", "", input_.timed()}, profile_, input_.functions())) {
    const FunctionTotals& t = *function.totals;
    const std::string name = valid_utf8(function_text(input_.functions(), function.id));
    const std::string module = function.id == kNoFunction ? "" : valid_utf8(input_.functions().info(function.id).module);
    out.set(0, name);
    out.set(1, module);
    const uint64_t values[] = {t.calls,      t.partial(),   t.self_instructions, t.instructions, t.self_ns, t.total_ns,
                               t.off_cpu_ns, t.untraced_ns, t.lost_ns,           t.self_cycles,  t.cycles};
    size_t column = 2;
    for (const uint64_t value : values) out.set(column++, static_cast<int64_t>(value));
    for (size_t i = kFirstSum; !t.has_times() && i < kFirstSum + kSums; ++i) out.set_null(i);
    for (const uint64_t value : {t.durations.quantile(0.5), t.durations.quantile(0.99), t.durations.max()}) {
      if (t.durations.count() != 0) {
        out.set(column++, static_cast<int64_t>(value));
      } else {
        out.set_null(column++);
      }
    }
    out.set(column++, static_cast<int64_t>(t.no_start));
    out.set(column++, static_cast<int64_t>(t.no_end));
    out.set(column, static_cast<int64_t>(t.estimated));
    if (const Status status = out.insert(); !status) return status;
  }
  return {};
}

Status CallRows::finish() {
  if (const Status status = write(); !status) return status;
  if (const Status status = write_paths(); !status) return status;
  return wanted_.functions ? write_functions() : Status{};
}

}  // namespace ptd::cli
