// `ptdecode timeline`, `flame` and `export`: the calls for viewers.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <utility>

#include "cli/calls/call_export.h"
#include "cli/cmd/commands.h"
#include "cli/export/exporter.h"
#include "cli/options/exit_status.h"
#include "cli/options/whole_file.h"
#include "cli/report/missing_report.h"
#include "cli/text/clean_text.h"
#include "cli/text/gzip.h"
#include "cli/text/size_words.h"
#include "ptdecode/function_profile.h"

namespace ptd::cli {

namespace {

struct ViewsWords {
  CallWords calls;
  std::string output, format = "svg", min, size;
  bool waiting = false;
};

/// Decodes the trace to find the duration of the shortest slice in a timeline of `size_bytes`. Returns it and the exit status.
std::pair<uint64_t, int> fit_slices(const ViewsWords& words, CallInput& input, uint64_t size_bytes) {
  constexpr uint64_t kSliceBytes = 48;  // two packets
  DurationCounts slices;
  const int status = input.walk(words.calls,
                                [&](std::span<const CallStep> steps, const CallTree& tree) {
                                  for (const CallStep& step : steps) {
                                    const bool is_slice =
                                        step.kind == CallStepKind::leave ||
                                        (step.kind == CallStepKind::on && step.off_cpu_ns + step.untraced_ns + step.lost_ns != 0);
                                    if (is_slice && input.wanted(step, tree)) slices.add(step.total_ns());
                                  }
                                  return true;
                                },
                                {.enters = false});
  const uint64_t count = slices.count(), fitting = size_bytes / kSliceBytes;
  if (status != kExitOk || count <= fitting) return {0, status};
  const uint64_t min_ns = slices.quantile(static_cast<double>(count - fitting) / static_cast<double>(count)) + 1;
  say_on_error(fmt::format("ptdecode: calls and waits shorter than {} are left out, because of --size\n", duration_text(min_ns)));
  return {min_ns, status};
}

Error untimed(const CallInput& input) { return {ErrorCode::not_recorded, std::string("timeline: ") + input.why_untimed(), 0}; }

int write_timeline(const ViewsWords& words, CallInput& input, uint64_t min_ns) {
  Result<std::unique_ptr<WholeFile>> file = WholeFile::open(words.output);
  if (!file) return report_error(file.error());
  if (is_terminal((*file)->fd()))
    return report_error({ErrorCode::bad_output, "timeline: the trace is binary, and the output is a terminal: name a file with -o", 0});
  PerfettoWriter writer(input, min_ns);
  std::unique_ptr<Gzip> gzip = words.output.ends_with(".gz") ? std::make_unique<Gzip>() : nullptr;
  std::string out, packed;
  const auto write = [&](std::string& text) {
    if (gzip == nullptr) return (*file)->write(text);
    packed.clear();
    gzip->add(text, packed);
    return packed.empty() || (*file)->write(packed);
  };
  const int status = input.walk(words.calls, [&](std::span<const CallStep> steps, const CallTree& tree) {
    out.clear();
    writer.take(steps, tree, out);
    return write(out);
  });
  if (status != kExitOk && status != kExitInterrupted) return status;
  if (status == kExitOk && !input.timed()) return report_error(untimed(input));
  out.clear();
  writer.add_pokes(out);
  writer.add_modules(out);
  const bool writable = write(out);  // else the events, which are decoded again, would have no reader
  if (status == kExitOk && writable) {
    if (const Status added = writer.add_events(write); !added && !interrupted()) return report_error(added.error());
  }
  packed.clear();
  if (gzip != nullptr) gzip->finish(packed);
  (*file)->write(packed);
  const int matched = input.say_summary(words.calls, writer.slices() != 0);
  if (matched != kExitOk) return matched;  // an existing file is kept
  if (keeps_earlier_file(words.output, status)) return status;
  if (const Status written = (*file)->finish(); !written) return report_error(written.error());
  if (!words.calls.input.quiet) {
    const std::string folded = writer.folded() == 0 ? "" : fmt::format(", {} in them", counted(writer.folded(), "shorter call"));
    say_on_error(
        fmt::format("ptdecode: {}: {}{}; open it in ui.perfetto.dev\n", shown(words.output), counted(writer.slices(), "slice"), folded));
  }
  return status != kExitOk ? status : strict_status(words.calls.input.strict, input.gaps(), input.recording());
}

int run_timeline(const ViewsWords& words) {
  uint64_t min_ns = 0, size = 0;
  if (!words.min.empty()) {
    const Result<uint64_t> parsed = parse_duration_ns(words.min);
    if (!parsed) return report_error({parsed.error().code, "--min: " + parsed.error().message, 0});
    min_ns = parsed.value();
  }
  if (!words.size.empty()) {
    const Result<uint64_t> parsed = parse_size("--size", words.size);
    if (!parsed) return report_error(parsed.error());
    size = parsed.value();
  }
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(words.calls);
  if (!opened) return report_error(opened.error());
  CallInput& input = **opened;
  if (!input.has_time()) return report_error(untimed(input));
  if (const Status fit = check_output(words.output); !fit) return report_error(fit.error());  // before the work
  if (size != 0) {
    const auto [fitting_ns, status] = fit_slices(words, input, size);
    if (status != kExitOk) return status;
    min_ns = std::max(min_ns, fitting_ns);
  }
  return write_timeline(words, input, min_ns);
}

int run_flame(const ViewsWords& words) {
  if (words.format == "svg" && words.output.empty())
    return report_error(
        {ErrorCode::contradictory_options, "flame: -o FILE.svg is missing; only --format folded writes to standard output", 0});
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(words.calls);
  if (!opened) return report_error(opened.error());
  CallInput& input = **opened;
  if (const Status fit = check_output(words.output); !fit) return report_error(fit.error());  // before the work
  if (words.waiting && !input.has_time())
    return report_error({ErrorCode::not_recorded, fmt::format("flame: --waiting needs times: {}", input.why_untimed()), 0});
  StackTotals totals(input, words.waiting ? StackWeight::waiting : StackWeight::self);
  const int status = input.walk(words.calls, [&](std::span<const CallStep> steps, const CallTree& tree) {
    totals.take(steps, tree);
    return true;
  });
  if (status != kExitOk && status != kExitInterrupted) return status;
  const int matched = input.say_summary(words.calls, totals.any());
  if (matched != kExitOk) return matched;  // an existing file is kept
  if (keeps_earlier_file(words.output, status)) return status;
  totals.finish();
  if (totals.is_full())
    say_on_error(
        fmt::format("ptdecode: there are more than {} stacks: calls in others count as part of their callers\n", CallPaths::kMostPaths));
  const std::string& path = words.calls.input.source();
  const std::string text =
      words.format == "folded" ? totals.folded() : totals.svg((words.waiting ? "waiting time by stack: " : "self time by stack: ") + path);
  if (const int written = write_result(words.output, text); written != kExitOk) return written;
  return status != kExitOk ? status : strict_status(words.calls.input.strict, input.gaps(), input.recording());
}

}  // namespace

Command add_timeline(CLI::App& app) {
  auto words = std::make_shared<ViewsWords>();
  CLI::App& command =
      *app.add_subcommand("timeline", "Draw the run as a timeline for ui.perfetto.dev: threads, nested calls, interrupts, waits");
  add_call_options(command, words->calls);
  add_inline_option(command, words->calls);
  add_fibre_option(command, words->calls.fibres);
  add_thread_option(command, words->calls.threads);
  command.add_option("-o,--output", words->output, "the file to write (Perfetto's trace format)")->required();
  command.add_option(
      "--min", words->min,
      "leave out calls and waits shorter than this: 1us, 500ns (ns, us, ms, s); a note of the enclosing call counts the calls");
  command.add_option(
      "--size", words->size,
      "leave out the shortest calls and waits, as --min does, so that the file has about this size before compression: 200M");
  command.footer(
      "Each slice is a call, or an interval marked [off cpu], [not traced] or [flow lost]. Changes of code, modules and BPF programs, "
      "and gaps are instants on separate tracks; PTWRITE, the frequency (CBR), instructions per cycle (CYC) and the C-state are "
      "counters. If the times of a call are estimates, because flow or a TSC is missing beside it, it has the note 'estimated times'. A "
      "file whose name ends in .gz is compressed. --size decodes the trace twice.\n"
      "Examples:\n"
      "  ptdecode timeline -o run.pftrace                           open it in ui.perfetto.dev\n"
      "  ptdecode timeline -o run.pftrace.gz --min 1us              a long run\n"
      "  ptdecode timeline -o run.pftrace --size 200M               a long run, as detailed as the size permits\n"
      "  ptdecode timeline -o slow.pftrace --tid 812 --time 17.9,+5ms");
  return [words] { return run_timeline(*words); };
}

Command add_flame(CLI::App& app) {
  auto words = std::make_shared<ViewsWords>();
  CLI::App& command = *app.add_subcommand("flame", "Draw a flame graph: self time by call stack, as an SVG or as folded lines");
  add_call_options(command, words->calls);
  add_inline_option(command, words->calls);
  add_fibre_option(command, words->calls.fibres);
  add_thread_option(command, words->calls.threads);
  command.add_option("-o,--output", words->output, "the file to write");
  command.add_option("--format", words->format, "svg, or folded: lines of 'comm;outer;inner NANOSECONDS'")
      ->check(CLI::IsMember({"svg", "folded"}));
  command
      .add_flag("--waiting", words->waiting,
                "show where threads waited, in place of where they ran: off the cpu, halted, not traced (kernel, filter), or lost")
      ->excludes("--no-time");
  command.footer(
      "Exact, not sampled: every call is counted, under its thread's name at the start of the call. Without times in the trace, the "
      "graph shows instructions. In the SVG, a click zooms into a frame, Escape zooms out, and Ctrl-F searches and shows the share of "
      "time.\n"
      "Where the trace, or the range of --time, begins inside of calls, they are known once the flow returns to them, and are then below "
      "their callees' earlier time too. Lost flow ends this.\n"
      "A thread without a name is shown as :TID. In folded lines, '_' replaces spaces in names. Calls that are more than 512 levels deep "
      "are shown together as [deeper calls].\n"
      "Examples:\n"
      "  ptdecode flame -o run.svg --comm postgres\n"
      "  ptdecode flame -o waits.svg --waiting                      which calls wait for locks, files or the network\n"
      "  ptdecode flame --format folded | flamegraph.pl > run.svg");
  return [words] { return run_flame(*words); };
}

Command add_export(CLI::App& app) {
  auto words = std::make_shared<ExportWords>();
  CLI::App& command =
      *app.add_subcommand("export", "Write calls, branches, functions, gaps and more to an SQLite database, for SQL and perf's viewer");
  add_call_options(command, words->calls);
  add_fibre_option(command, words->calls.fibres);
  add_thread_option(command, words->calls.threads);
  command.add_option("-o,--output", words->output, "the database to write")->required();
  command.add_option("--tables", words->tables, "the tables of TABLES.md to write, by comma; blocks only if named");
  command.footer(
      "The tables of TABLES.md are named ptd_calls, ptd_branches and so on. The tables and views of perf's export-to-sqlite.py are there "
      "too, under perf's names, so that perf's exported-sql-viewer.py opens the database.\n"
      "Addresses are signed, as in perf's databases: printf('%x', ip) shows them.\n"
      "Examples:\n"
      "  ptdecode export -o run.db\n"
      "  sqlite3 run.db \"SELECT call, count(*), max(end_ns - start_ns) FROM ptd_calls GROUP BY call ORDER BY 3 DESC LIMIT 10\"\n"
      "  ptdecode export -o calls.db --tables calls,functions --comm postgres   smaller\n"
      "  python3 /usr/lib/perf-core/scripts/python/exported-sql-viewer.py run.db");
  return [words] { return write_database(*words); };
}

}  // namespace ptd::cli
