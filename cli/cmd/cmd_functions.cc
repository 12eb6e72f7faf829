// `ptdecode functions`: where the time went, function by function, and which calls took longest.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "analysis/names/name_match.h"
#include "analysis/names/short_name.h"
#include "analysis/paths/module_match.h"
#include "cli/calls/function_diff.h"
#include "cli/calls/function_rows.h"
#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/format_option.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "cli/text/terminal.h"

namespace ptd::cli {

namespace {

constexpr int64_t kMostListed = 1'000'000'000;
constexpr size_t kMinName = 24;  // however narrow the terminal
constexpr size_t kTextRows = 40;

struct FunctionsWords {
  CallWords calls;
  std::string function, sort = "self", format = "text";
  std::optional<size_t> limit;  ///< 0: all; not given: kTextRows, and all in JSON
  size_t slowest = 0;
  [[nodiscard]] size_t rows(size_t all) const {
    const size_t most = limit.value_or(format == "json" ? 0 : kTextRows);
    return most == 0 ? all : std::min(most, all);
  }
  bool full_names = false;
  std::vector<std::string> diff;  ///< two recordings, or empty
};

void print_json(std::span<const FunctionRow> rows, const SlowCalls& slow, const CallInput& input, const FunctionTable& functions) {
  const bool timed = input.timed();
  const auto dump = [](const nlohmann::json& json) {
    standard_output().write(json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
  };
  dump({{"schema", "ptdecode-functions-1"},
        {"timed", timed},
        {"calls_too_deep", input.folded()},
        {"guessed_longjmps", input.guessed()},
        {"stacks_abandoned", input.forgotten()}});
  for (const FunctionRow& row : rows) dump(function_json(row, timed, functions));
  for (const SlowCall& call : slow.calls()) dump(slow_call_json(call, functions));
}

/// Instructions per cycle of the function itself; none without instructions or without cycles.
std::string ipc_text(const FunctionTotals& totals) {
  if (totals.self_cycles == 0 || totals.self_instructions == 0) return "-";
  return fmt::format("{:.2f}", static_cast<double>(totals.self_instructions) / static_cast<double>(totals.self_cycles));
}

/// What the columns are made for.
struct Columns {
  uint64_t all_self = 0;
  bool times = false, cycles = false;  ///< times: not instructions
};

/// Returns the module of a name, unless the name contains it.
std::string module_text(const FunctionTable& functions, FunctionId id) {
  if (id == kNoFunction) return {};
  const FunctionInfo& info = functions.info(id);
  return info.module.empty() || is_unnamed(info) ? "" : " (" + info.module + ")";
}

/// "[2 more without start, 1 without end]": the first are not in the column of calls, the others are.
std::string partial_text(const FunctionTotals& totals) {
  if (totals.partial() == 0) return {};
  std::string text;
  if (totals.no_start != 0) text = fmt::format("{} more without start", totals.no_start);
  if (totals.no_end != 0) text += fmt::format("{}{} without end", text.empty() ? "" : ", ", totals.no_end);
  return " [" + text + "]";
}

std::string line_of(const FunctionRow& row, const Columns& columns, const FunctionTable& functions, size_t width) {
  const FunctionTotals& t = *row.totals;
  const auto part = [](uint64_t some, uint64_t all) { return all == 0 ? 0.0 : 100 * static_cast<double>(some) / static_cast<double>(all); };
  std::string line = fmt::format("{:>10} ", t.calls);
  if (columns.times) {
    const auto of_calls = [&t](uint64_t ns) { return t.durations.count() == 0 ? std::string("-") : duration_text(ns); };
    const auto sum = [&t](uint64_t ns) { return t.has_times() ? (t.estimated != 0 ? "~" : "") + duration_text(ns) : std::string("-"); };
    const uint64_t waits = t.off_cpu_ns + t.untraced_ns + t.lost_ns;
    line += fmt::format("{:>9} {:>5.1f} {:>9} {:>9} {:>9} {:>9} {:>9} ", sum(t.self_ns), part(t.self_ns, columns.all_self), sum(t.total_ns),
                        waits == 0 ? "-" : duration_text(waits), of_calls(t.durations.quantile(0.5)), of_calls(t.durations.quantile(0.99)),
                        of_calls(t.durations.max()));
  } else {
    line += fmt::format("{:>14} {:>5.1f} {:>14} ", t.self_instructions, part(t.self_instructions, columns.all_self), t.instructions);
  }
  if (columns.cycles) line += fmt::format("{:>5} ", ipc_text(t));
  const std::string module = module_text(functions, row.id);
  const size_t left = width > line.size() + module.size() ? width - line.size() - module.size() : width == 0 ? 0 : kMinName;
  return line + shown(function_text(functions, row.id, left)) + shown(module) + partial_text(t) + "\n";
}

void print_table(const FunctionsWords& words, const std::vector<FunctionRow>& rows, CallInput& input) {
  const bool times = input.timed() && words.sort != "instructions";
  const FunctionTable& functions = input.functions();
  Columns columns{0, times, false};
  for (const FunctionRow& row : rows) {
    columns.all_self += times ? row.totals->self_ns : row.totals->self_instructions;
    columns.cycles = columns.cycles || row.totals->self_cycles != 0;
  }
  Output& output = standard_output();
  output.write(
      fmt::format("     calls {} {}function{}\n",
                  times ? "     self     %     total   waiting       p50       p99       max" : "     self insn     %     total insn",
                  columns.cycles ? "  ipc " : "", input.timed() ? "" : fmt::format("     ({})", input.why_untimed())));
  const size_t width = words.full_names ? 0 : terminal_columns();
  const size_t shown_rows = words.rows(rows.size());
  for (size_t i = 0; i < shown_rows; ++i) output.write(line_of(rows[i], columns, functions, width));
  const auto end = rows.begin() + static_cast<std::ptrdiff_t>(shown_rows);
  if (times && std::any_of(rows.begin(), end, [](const FunctionRow& row) { return row.totals->estimated != 0; }))
    output.write(
        "~: the times of some calls are estimates, because flow or a TSC is missing beside them; --format json has their number\n");
  if (rows.size() > shown_rows)
    output.write(fmt::format("and {}; --limit 0 lists all\n", counted(rows.size() - shown_rows, "more function")));
}

void print_slow(const FunctionsWords& words, const SlowCalls& slow, const FunctionTable& functions) {
  Output& output = standard_output();
  if (slow.calls().empty()) {
    output.write(
        fmt::format("\nno call of {} to list: none was seen from its start, so how long they took is not known\n", shown(words.function)));
    return;
  }
  output.write(fmt::format("\nslowest calls of {}\n{:>10} {:>9} {:>9}  {:<16} {:>7}  zoom in with\n", shown(words.function), "took",
                           "off cpu", "untraced", "comm", "tid"));
  for (const SlowCall& call : slow.calls()) {
    const std::string function = function_text(functions, call.step.function);
    const std::string name = (function == words.function ? "" : "  " + shown(function)) +
                             ((call.step.flags & kCallCut) != 0 ? "  [end not seen: took longer]" : "");
    const bool dated = (call.step.flags & kCallUndated) == 0;
    const std::string took = dated ? ((call.step.flags & kCallEstimated) != 0 ? "~" : "") + duration_text(call.step.total_ns()) : "-";
    const std::string time = dated ? fmt::format(" --time {},{}", start_text(call.step), moment_text(call.step.time)) : "";
    output.write(fmt::format(
        "{:>10} {:>9} {:>9}  {:<16} {:>7}  --tid {}{}{}\n", took, call.step.off_cpu_ns == 0 ? "-" : duration_text(call.step.off_cpu_ns),
        call.step.untraced_ns == 0 ? "-" : duration_text(call.step.untraced_ns), shown(call.comm), call.tid, call.tid, time, name));
  }
}

/// What of the threads' times counts for the names of --comm: the time of the calls that began under them, and the waits that did.
class NamedTimes {
 public:
  void add(const CallStep& step) {
    if (step.kind == CallStepKind::leave) all_.running_ns += step.self_ns;
    if (step.kind != CallStepKind::on) return;  // a wait has the name under which it began, as the call that waits
    all_.off_cpu_ns += step.off_cpu_ns;
    all_.untraced_ns += step.untraced_ns;
    all_.lost_ns += step.lost_ns;
  }
  /// Replaces the threads' own times, keeping their number and what limits the counts.
  void replace(std::vector<CallThread>& threads) const {
    CallThread all = all_;
    for (CallThread& thread : threads) {
      all.uncertain += thread.uncertain;
      const uint64_t fibre = thread.fibre;
      thread = {};
      thread.fibre = fibre;
    }
    if (threads.empty()) return;
    all.fibre = threads.front().fibre;
    threads.front() = all;
  }

 private:
  CallThread all_;
};

void print_threads(const std::vector<CallThread>& threads) {
  uint64_t running = 0, off_cpu = 0, untraced = 0, lost = 0, gaps = 0, forgotten = 0, uncertain = 0, fibres = 0;
  for (const CallThread& thread : threads) {
    fibres += thread.fibre != 0 ? 1 : 0;
    running += thread.running_ns;
    off_cpu += thread.off_cpu_ns;
    untraced += thread.untraced_ns;
    lost += thread.lost_ns;
    gaps += thread.gaps;
    forgotten += thread.forgotten;
    uncertain += thread.uncertain;
  }
  const std::string whose = counted(threads.size() - fibres, "thread") + (fibres == 0 ? "" : ", " + counted(fibres, "fibre"));
  std::string text = fmt::format("{}: {} running, {} off cpu, {} not traced, {} lost\n", whose, duration_text(running),
                                 duration_text(off_cpu), duration_text(untraced), duration_text(lost));
  if (gaps + forgotten != 0)
    text += fmt::format(
        "open calls were abandoned {} at gaps, {} because the flow continued at a place that no call "
        "explains\n",
        counted(gaps, "time"), counted(forgotten, "time"));
  if (uncertain != 0)
    text += fmt::format("{} on uncertain flow, which may not have run: 'ptdecode stat' counts ambiguous and suspect code\n",
                        counted(uncertain, "call rests", "calls rest"));
  standard_output().write(text);
}

/// Returns the end of a message that names the files in which functions without a symbol ran; empty if there are none.
std::string nameless_files(const FunctionTable& functions) {
  std::set<std::string> files;
  for (FunctionId id = 0; id < functions.size(); ++id) {
    const FunctionInfo& info = functions.info(id);
    if (!info.module.starts_with('[') && is_unnamed(info)) files.insert(info.module);
  }
  constexpr size_t kListed = 3;
  std::string list;
  size_t listed = 0;
  for (const std::string& file : files) {
    if (listed++ < kListed) list += (list.empty() ? "" : ", ") + file;
  }
  if (files.size() > kListed) list += fmt::format(" and {}", counted(files.size() - kListed, "other file"));
  return list.empty() ? "" : fmt::format("; functions without a symbol, as in {}, are listed as FILE+0xOFFSET", list);
}

/// The message for a function that was not called, with the nearest name of those that were met.
std::string not_called(const std::string& name, const FunctionTable& functions, const CallInput& input) {
  const GapTally& gaps = input.gaps();
  const Recording& recording = input.recording();
  std::vector<std::string> names;
  for (FunctionId id = 0; id < functions.size(); ++id) {
    for (std::string& each : functions.names(id)) names.push_back(std::move(each));
  }
  const std::string near = is_glob(name) ? "" : nearest_name(name, names);
  const bool is_known = std::any_of(names.begin(), names.end(), [&](const std::string& each) { return matches_name(name, each); });
  const bool is_symbol = is_glob(name) || !recording.symbolizer().addresses_of(name).empty();
  if (is_known || (is_symbol && !is_glob(name) && !input.wants_all()))
    return fmt::format("--func: '{}' was not called in the threads and the time that are selected", name);
  const std::string others = near.empty() ? "" : fmt::format(" (there is '{}')", near);
  if (gaps.total() != 0)
    return fmt::format(
        "--func: no call of '{}' is in the flow that could be decoded{}; flow is lost {}, where it may have been called: 'ptdecode check' "
        "says why",
        name, others, counted(gaps.total(), "time"));
  const std::string list = name.find(',') == std::string::npos ? "" : ": it takes one name, or a glob such as 'read*'";
  return fmt::format("--func: {}{}{}{}; 'ptdecode functions --limit 0' lists what was called",
                     is_symbol ? fmt::format("'{}' was not called", name) : fmt::format("no function is named '{}'", name), list, others,
                     is_symbol && !is_glob(name) ? "" : nameless_files(functions));
}

int run_diff(const FunctionsWords& words) {
  if (words.slowest != 0 || words.sort == "max")
    return report_error({ErrorCode::contradictory_options, "functions: --diff has no --slowest and no --sort max: it compares sums", 0});
  FunctionDiffWords diff{{words.calls, words.calls}, words.function, words.sort, words.format == "json", words.limit};
  for (size_t side = 0; side < 2; ++side) diff.calls[side].input.path = words.diff[side];
  return diff_functions(diff);
}

int run_functions(const FunctionsWords& words) {
  if (!words.diff.empty()) return run_diff(words);
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(words.calls);
  if (!opened) return report_error(opened.error());
  CallInput& input = **opened;
  FunctionProfile profile;
  SlowCalls slow(words.slowest);
  std::vector<CallThread> threads;
  FunctionFilter filter = filter_of(words.function, input.functions());
  const bool by_name = !input.filter().comms.empty();
  const bool sums_only = input.wants_all() && words.slowest == 0;
  NamedTimes named;
  const int status = input.walk(words.calls,
                                [&](std::span<const CallStep> steps, const CallTree& tree) {
                                  size_t first = 0;  // of those that are wanted and not counted yet
                                  for (size_t i = 0; i < steps.size(); ++i) {
                                    const CallStep& step = steps[i];
                                    if (!input.wanted(step, tree)) {
                                      profile.add(steps.subspan(first, i - first));
                                      first = i + 1;
                                      continue;
                                    }
                                    if (by_name) named.add(step);
                                    const bool started = (step.flags & (kCallNoStart | kCallMiddle)) == 0;
                                    if (words.slowest == 0 || step.kind != CallStepKind::leave || !started || step.function == kNoFunction)
                                      continue;
                                    if (!filter.wanted(step.function)) continue;
                                    if (!slow.wants(step)) continue;
                                    const CallThread& thread = tree.threads()[step.thread];
                                    slow.add({step, thread.pid, thread.tid, input.comm(step, tree)});
                                  }
                                  profile.add(steps.subspan(first));
                                  for (uint32_t i = 0; tree.finished() && i < tree.threads().size(); ++i) {
                                    if (sums_only || input.matched(i)) threads.push_back(tree.threads()[i]);
                                  }
                                  return true;
                                },
                                {.enters = false, .totals = sums_only ? &profile : nullptr});
  if (status != kExitOk && status != kExitInterrupted) return status;
  if (by_name) named.replace(threads);
  const std::vector<FunctionRow> rows = ranked({words.sort, words.function, input.timed()}, profile, input.functions());
  if (rows.empty() && !words.function.empty()) {
    if (status == kExitInterrupted) return (void)input.say_summary(words.calls, false), status;
    return report_error({ErrorCode::no_such_function, not_called(words.function, input.functions(), input), 0});
  }
  const bool is_empty = rows.empty() && status == kExitOk;
  // Without an empty table.
  if (const int matched = is_empty ? input.say_summary(words.calls, false) : kExitOk; matched != kExitOk) return matched;
  if (words.format == "json") {
    print_json(std::span(rows).first(words.rows(rows.size())), slow, input, input.functions());
  } else {
    print_table(words, rows, input);
    if (words.slowest != 0) print_slow(words, slow, input.functions());
    if (words.function.empty() && input.timed()) print_threads(threads);
  }
  standard_output().flush();
  const int matched = is_empty ? kExitOk : input.say_summary(words.calls, true);
  if (status != kExitOk || matched != kExitOk) return status != kExitOk ? status : matched;
  return strict_status(words.calls.input.strict, input.gaps(), input.recording());
}

constexpr const char* kFooter =
    "calls: calls whose start is in the trace. [2 more without start, 1 without end]: the start of two other calls was not seen, or "
    "they were entered in the middle, and the end of one call is missing.\n"
    "self: time in the function without its callees. total: self, callees and waiting. A tail call ends a function: the function that "
    "it jumps to counts in the total of the caller of both.\n"
    "waiting: the part of total in which it did not run: off the cpu, halted, not traced (kernel, filter), or lost. When tracing stops "
    "and resumes, the time that the instructions before and after do not account for is waiting.\n"
    "NAME (inlined): a function that is inlined in others. Its calls are entries from outside at its first instruction. The compiler "
    "mixes its code with the code around it, so an entry elsewhere continues a call and counts as one without start. With --no-inline, "
    "its time counts for the function that contains it.\n"
    "A direct jump of a function to its own first instruction may be a loop, or a tail call of itself, and is no call. An indirect one "
    "is a tail call. Where the flow runs from the end of one function into the next without a branch, as in hand-written assembly, "
    "nothing is called.\n"
    "Percentiles include only calls that were seen from start to end.\n"
    "Limitation: time between two timing packets is divided in proportion to the instructions. Shorter calls have estimated durations, "
    "even with CYC packets, each of which covers up to 47 branches. Own times of several --time ranges do not add up exactly to that "
    "of all.\n"
    "~: no packet gives the start or end of some of these calls, because flow or a TSC is missing beside them. Their times are "
    "estimated from the rate of other code. 'estimated' in JSON and tables is their number.\n"
    "NAME@resolver is the code by which a library chooses an implementation of NAME (STT_GNU_IFUNC), if no other symbol names it. The "
    "dynamic linker calls it, and calls of NAME go to what it has chosen.\n"
    "A function without a symbol is named by module and file offset (libc.so.6+0x1234): its start by .eh_frame, else the address that "
    "is called, or to which a jump leads out of another function. If direct jumps lead back into that function, the code "
    "is a part of it. Other code without a symbol is in the row [unnamed code of libc.so.6].\n"
    "Of several names of one function, the row has the public one: free, not cfree@GLIBC_2.2.5 or __libc_free. --func and the -S of "
    "'script' find it by each. A stub of a procedure linkage table is a function of its own: strlen does not select strlen@plt, "
    "strlen* selects both. Limitation: of more than 1024 names of one address, only the first are known.\n"
    "Static functions of one name in one program or library have rows of their own, named by source file (a.c:f), or by address in the "
    "file if the symbol table does not tell the source files apart (0x1234:f). --func f selects all of them, --func a.c:f one.\n"
    "Kernel functions of one name in one module are named by address (0xffffffff81234560:f). So are functions that differ only in "
    "their mangled names: instances of a generic Rust function, the deleting destructor of a C++ class. --diff adds these up.\n"
    "Limitation: each resumption of a C++20 coroutine is a call of its resume function (f [clone .actor]) and counts as one.\n"
    "ipc: the function's own instructions per core cycle, if the trace counts cycles (perf record -e intel_pt/cyc/u).\n"
    "--diff: the largest change of --sort comes first: of time in the function itself, or of instructions, which vary less between two "
    "runs.\n"
    "per call: change for each call. Functions are matched by name and module, else by name: a module may be another version of "
    "a program. Of what is left, a clone or piece (f.constprop.0, f.isra.0, f.llvm.1, f.part.0, f.cold) and an inlined function match "
    "f, if each side has one function of that name. 'inlined': it is inlined, so calls and times for each are not comparable. 'new' "
    "and 'gone': one side has it. Limitation: if the other has it inlined without debug information, its time there is that of its "
    "callers.\n"
    "-: some of these calls have no times, which are then not compared.\n"
    "Examples:\n"
    "  ptdecode functions --comm postgres                       where time was spent\n"
    "  ptdecode functions --diff before.data after.data         what got slower\n"
    "  ptdecode functions --func exec_simple_query --slowest 20 which calls were slow, and when";

}  // namespace

Command add_functions(CLI::App& app) {
  auto words = std::make_shared<FunctionsWords>();
  CLI::App& command =
      *app.add_subcommand("functions", "Show where time was spent: calls, self and total time, p50, p99 and longest call of each function");
  add_call_options(command, words->calls);
  add_inline_option(command, words->calls);
  add_fibre_option(command, words->calls.fibres);
  add_thread_option(command, words->calls.threads);
  command.add_option(
      "--func", words->function,
      "this function only, by any of its names ('nm' lists aliases), with or without parameters and version; wildcards: 'sqlite3*'");
  command.add_option("--slowest", words->slowest, "with --func: its N longest calls, with their --tid and --time options")
      ->needs("--func")
      ->check(CLI::Range(int64_t{0}, kMostListed));
  command.add_option("--sort", words->sort, "self, total, calls, max or instructions, which lists instructions in place of times")
      ->check(CLI::IsMember({"self", "total", "calls", "max", "instructions"}));
  command.add_option("--diff", words->diff, "compare two recordings A and B: what got slower or faster, by function and by call path")
      ->expected(2)
      ->type_name("A B")
      ->excludes("--input");
  command.add_option("--limit", words->limit, "number of functions to list (default 40, with --format json all; 0: all)")
      ->check(CLI::Range(int64_t{0}, kMostListed));
  add_format_option(command, words->format, "text, or json: one object per line");
  command.add_flag("--full-names", words->full_names, "do not shorten names to fit the terminal");
  command.footer(kFooter);
  return [words] { return run_functions(*words); };
}

}  // namespace ptd::cli
