// `ptdecode script`: the flow as lines of text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <mutex>

#include "analysis/names/short_name.h"
#include "cli/calls/call_json.h"
#include "cli/calls/call_script.h"
#include "cli/calls/divergence.h"
#include "cli/calls/other_lines.h"
#include "cli/cmd/commands.h"
#include "cli/list/stream_script.h"
#include "cli/options/exit_status.h"
#include "cli/options/format_option.h"
#include "cli/options/options.h"
#include "cli/options/progress.h"
#include "cli/options/thread_filters.h"
#include "cli/report/filter_check.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/output_trouble.h"
#include "cli/text/terminal.h"
#include "ptdecode/bundle.h"
#include "ptdecode/survey.h"

namespace ptd::cli {

namespace {

/// As typed.
struct ScriptWords {
  InputOptions input;
  std::string itrace, fields, cpus, pids, tids, comms, symbols, insn_trace;
  std::vector<std::string> times, diff;
  bool has_itrace = false, has_insn_trace = false, call_trace = false, call_ret_trace = false, ns = false, full_names = false, tod = false,
       fibres = false;
  std::string syntax, format = "text";
};

/// The shortcuts --call-trace, --call-ret-trace and --insn-trace[=disasm], which set other options as in perf.
Status take_shortcuts(const ScriptWords& words, ScriptOptions& options) {
  if (words.call_trace || words.call_ret_trace) {
    options.itrace = default_itrace();
    options.itrace.returns = words.call_ret_trace;
    options.nanoseconds = true;
    for (const Field field : {Field::event, Field::period, Field::ip, Field::symoff, Field::addr}) options.tree_fields.remove(field);
  }
  if (words.has_insn_trace) {
    if (!words.insn_trace.empty() && words.insn_trace != "disasm" && words.insn_trace != "raw") {
      return Error{ErrorCode::bad_option, fmt::format("--insn-trace: '{}' is neither disasm nor raw", words.insn_trace), 0};
    }
    options.itrace = ItraceOptions{};
    options.itrace.instructions = options.itrace.errors = true;
    options.itrace.unit = PeriodUnit::instructions;
    options.itrace.period = 1;
    options.fields.remove(Field::event);
    options.fields.remove(Field::period);
    options.fields.remove(Field::flags);
    options.fields.add(words.insn_trace == "disasm" ? Field::disasm : Field::insn);
    options.nanoseconds = true;
  }
  return {};
}

/// A tree of calls is text, and its lines are branches.
Status check_tree(const ScriptWords& words, const ScriptOptions& options) {
  if (!options.fields.has(Field::callindent)) return {};
  const bool shortcut = words.call_trace || words.call_ret_trace;
  const auto wrong = [&](std::string_view reason) {
    const char* option = words.call_trace ? "--call-trace" : shortcut ? "--call-ret-trace" : "-F callindent";
    return Error{ErrorCode::contradictory_options, fmt::format("{} {}", option, reason), 0};
  };
  if (options.json) return wrong("is text: omit it, because --format json lists calls by default");
  if (options.fields.has(Field::brstack)) return wrong("and -F brstack write different lines: choose one");
  if (shortcut && words.has_insn_trace)
    return wrong("and --insn-trace list different lines: choose one, or use -F +callindent with --itrace=i1ic");
  if (!options.itrace.any_branch()) return wrong("indents calls, returns and branches: add c, r or b to --itrace");
  return {};
}

Result<ScriptOptions> script_options(const ScriptWords& words) {
  ScriptOptions options;
  options.nanoseconds = words.ns;
  options.json = words.format == "json";
  if (options.json) options.fields.add(Field::flags);
  if (Status status = take_shortcuts(words, options); !status) return status.error();
  if (words.has_itrace) {
    Result<ItraceOptions> itrace = parse_itrace(words.itrace);
    if (!itrace) return itrace.error();
    options.itrace = std::move(*itrace);
  }
  if (!words.fields.empty()) {
    for (Fields* all : {&options.fields, &options.tree_fields}) {
      const Result<Fields> fields = parse_fields(words.fields, *all);
      if (!fields) return fields.error();
      *all = *fields;
    }
  }
  if (words.call_trace || words.call_ret_trace) options.fields.add(Field::callindent);
  if (Status status = parse_thread_filters({words.cpus, words.pids, words.tids}, options); !status) return status.error();
  for (const std::string& text : words.times) {
    if (Status status = check_time_words(text); !status) return status.error();
  }
  options.comms = split_names(words.comms);
  options.symbols = split_names(words.symbols);
  options.att_syntax = words.syntax != "intel";
  if (Status status = check_tree(words, options); !status) return status.error();
  if (!words.syntax.empty() && !options.fields.has(Field::disasm))
    return Error{ErrorCode::contradictory_options, "script: --syntax is for disassembly: add --insn-trace=disasm or -F +disasm", 0};
  const bool stacks = options.fields.has(Field::brstack);
  if (options.json && stacks) return Error{ErrorCode::contradictory_options, "-F brstack writes text for perf2bolt: omit --format", 0};
  if (stacks) {
    if (words.has_insn_trace) return Error{ErrorCode::contradictory_options, "-F brstack lists branches: omit --insn-trace", 0};
    if (words.has_itrace || !options.symbols.empty())
      return Error{ErrorCode::contradictory_options, "-F brstack lists every branch in order: omit --itrace and -S", 0};
    options.itrace = ItraceOptions{};
    options.itrace.branches = true;
  }
  return options;
}

/// Decodes one stream into `sink`.
void run_stream(const Recording& recording, const ScriptOptions& options, uint32_t stream, ChunkSink& sink, Progress& progress,
                GapTally& tally, std::mutex& tally_mutex) {
  StreamScript script(recording, options, recording.streams()[stream].cpu);
  TimeNs first = kTimeMin;
  if (!options.times.empty()) {
    first = std::min_element(options.times.begin(), options.times.end(), [](const Interval& a, const Interval& b) {
              return a.first < b.first;
            })->first;
  }
  const uint64_t begin = first == kTimeMin ? 0 : recording.segment_at(stream, first);
  Chunk chunk;
  uint64_t offset = 0;
  const Status status = recording.decode(stream, begin, Recording::kStreamEnd,
                                         [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
                                           if (!script.take(batch, decoder.blocks(), chunk, sink)) return false;
                                           if (segment.stream_offset_bytes > offset) {
                                             progress.add(segment.stream_offset_bytes - offset);
                                             offset = segment.stream_offset_bytes;
                                           }
                                           return !sink.stopped() && !script.past_the_end();
                                         });
  script.end(chunk);
  sink.push(chunk);
  const std::lock_guard lock(tally_mutex);
  tally.merge(script.tally());
  if (!status) report_error(status.error());
}

/// Nothing was said of what to list: calls, with their durations.
bool lists_calls(const ScriptWords& words) {
  return !words.has_itrace && !words.has_insn_trace && !words.call_trace && !words.call_ret_trace && words.fields.empty();
}

/// Warnings about files whose source lines are used without proof, or not used.
std::string file_text(const ScriptOptions& options, const Recording& recording) {
  return options.unproven->text() + symbol_warnings(recording);
}

/// What to add to times for the time of day. Errors: usage, if the recording does not tell.
Status find_time_of_day(const Recording& recording, std::optional<int64_t>& offset_ns) {
  offset_ns = wall_clock_offset(recording);
  return offset_ns ? Status{}
                   : Error{ErrorCode::not_recorded, "the time of day is not recorded ('perf record -k monotonic' records it)", 0};
}

int run_calls(const ScriptWords& words) {
  if (words.times.size() > 1)
    return report_error(
        {ErrorCode::contradictory_options, "the tree of calls takes one --time; only --call-trace and --itrace take several", 0});
  CallWords call_words{words.input, words.cpus, words.pids, words.tids, words.comms, words.times.empty() ? "" : words.times.front()};
  call_words.fibres = words.fibres;
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(call_words);
  if (!opened) return report_error(opened.error());
  CallInput& input = **opened;
  const bool cpus = input.recording().streams().front().cpu >= 0;
  std::optional<int64_t> wall_offset;
  if (Status status = words.tod ? find_time_of_day(input.recording(), wall_offset) : Status{}; !status) return report_error(status.error());
  input.set_symbols(split_names(words.symbols));
  CallScript script(input, split_names(words.symbols), words.ns, cpus, words.full_names ? 0 : terminal_columns(), wall_offset);
  CallJson json(input, split_names(words.symbols));
  const bool as_json = words.format == "json";
  const OtherEvents samples = read_samples(words.input, input.filter().times);
  SampleMerge merge(samples, as_json ? nullptr : &script, as_json ? &json : nullptr);
  TextBuffer text;
  Output& output = standard_output();
  if (as_json) json.begin(text);
  const uint64_t heading = output.bytes() + text.view().size();
  bool first = true;
  const auto write = [&] {
    const bool open = output.write(text.view()) && (!std::exchange(first, false) || output.flush());
    text.clear();
    return open && !output.closed();
  };
  const int status = input.walk(call_words, [&](std::span<const CallStep> steps, const CallTree& now) {
    merge.take(steps, now, text);
    return write();
  });
  if (status != kExitOk && status != kExitInterrupted) return status;
  if (status == kExitOk) merge.finish(text), write();
  output.flush();
  if (output.error() != 0) return report_error(output_trouble(output));
  const bool wanted = !output.closed() || status == kExitInterrupted;
  const int matched = wanted ? input.say_summary(call_words, output.bytes() > heading) : kExitOk;
  if (status != kExitOk || matched != kExitOk) return status != kExitOk ? status : matched;
  return strict_status(words.input.strict, input.gaps(), input.recording());
}

int run_diff(const ScriptWords& words) {
  if (words.times.size() > 1 || !lists_calls(words) || words.format == "json" || !words.symbols.empty() || words.fibres)
    return report_error(
        {ErrorCode::contradictory_options, "script: --diff compares calls: it takes one --time, and -C, --pid, --tid and --comm", 0});
  CallWords call_words{words.input, words.cpus, words.pids, words.tids, words.comms, words.times.empty() ? "" : words.times.front()};
  std::array<CallWords, 2> both{call_words, call_words};
  for (size_t side = 0; side < both.size(); ++side) both[side].input.path = words.diff[side];
  return show_divergence(both);
}

int run_script(const ScriptWords& words) {
  if (!words.diff.empty()) return run_diff(words);
  Result<ScriptOptions> options = script_options(words);
  if (!options) return report_error(options.error());
  if (lists_calls(words)) return run_calls(words);
  if (words.fibres)
    return report_error({ErrorCode::contradictory_options,
                         "script: --fibres applies to the tree of calls: omit --itrace, -F, --call-trace and --insn-trace", 0});
  for (const std::string& note : options->itrace.notes) say_on_error("ptdecode: " + note + "\n");
  Result<std::unique_ptr<Recording>> opened = open_traced(words.input);
  if (!opened) return report_error(opened.error());
  const Recording& recording = **opened;
  for (const std::string& text : words.times) {
    const Result<Interval> range = read_time(text, recording);
    if (!range) return report_error(range.error());
    options->times.push_back(*range);
  }
  if (words.tod || options->fields.has(Field::tod)) {
    if (Status status = find_time_of_day(recording, options->wall_offset_ns); !status) return report_error(status.error());
  }
  if (options->fields.has(Field::srcline) && !words.input.is_raw() && looks_like_bundle(words.input.path))
    say_on_error("ptdecode: " + no_source_lines("srcline").message + "\n");
  for (const std::string& sentence : impossible_filters(*options, recording)) say_on_error("ptdecode: " + sentence + "\n");

  options->unproven = std::make_shared<UnprovenFiles>();
  Progress progress("decoding", !words.input.quiet && !is_terminal(1));
  GapTally tally;
  std::mutex tally_mutex;
  std::vector<StreamTask> tasks;
  uint64_t total_bytes = 0;
  for (const uint32_t stream : matching_streams(*options, recording)) {
    const StreamInfo& info = recording.streams()[stream];
    total_bytes += info.size_bytes;
    tasks.push_back(
        {info.time.first, [&, stream](ChunkSink& sink) { run_stream(recording, *options, stream, sink, progress, tally, tally_mutex); }});
  }
  if (tasks.empty()) return report_error({ErrorCode::no_such_stream, "no trace stream of these cpus or threads", 0});
  const bool stacks = options->fields.has(Field::brstack);
  const OtherEvents samples = stacks || options->addresses_only() ? OtherEvents{} : read_samples(words.input, options->times);
  if (!samples.events.empty()) tasks.push_back(sample_task(recording, *options, samples));
  progress.set_total(total_bytes);
  Output& output = standard_output();
  if (options->json) output.write("{\"schema\":\"ptdecode-flow-1\"}\n");
  const uint64_t heading = output.bytes();
  stop_on_interrupt();
  const bool complete = merge_streams(std::move(tasks), output) && output.flush();
  progress.finish();
  if (interrupted()) {
    output.flush();
    say_on_error(file_text(*options, recording) + interrupt_text(progress.share(), tally));
    if (!words.input.quiet) say_on_error(gap_summary(tally, recording, total_bytes));
    return kExitInterrupted;
  }
  if (!complete) {
    if (output.error() != 0) return report_error(output_trouble(output));
    return kExitOk;  // the reader had enough
  }
  const std::string why = output.bytes() > heading ? std::string{} : nothing_matched(*options, recording);
  if (!why.empty()) say_on_error("ptdecode: " + why + "\n");
  say_on_error(file_text(*options, recording));
  if (!words.input.quiet) say_on_error(gap_summary(tally, recording, total_bytes));
  return why.empty() ? strict_status(words.input.strict, tally, recording) : kExitUsage;
}

}  // namespace

Command add_script(CLI::App& app) {
  auto words = std::make_shared<ScriptWords>();
  CLI::App& command =
      *app.add_subcommand("script", "List the flow: the tree of calls with durations, or branches, events, or every instruction");
  add_input_options(command, words->input);
  CLI::Option* itrace =
      command
          .add_option("--itrace", words->itrace,
                      "what to list, in perf's letters: i<period><i|t|ns|us|ms> instructions, b all branches, or c calls and "
                      "r returns, e gaps, x transactions,\n"
                      "w ptwrite, p power, I interrupts and state, o PEBS; g G l L have no effect (default: all)")
          ->expected(0, 1);
  command.add_option(
      "-F,--fields", words->fields,
      "columns, laid out like perf script's: comm,tid,pid,cpu,time,event,period,ip,sym,symoff,dso,addr,flags,insn,insnlen; others: "
      "disasm,callindent,mark,srcline,tod,brstack; +name and -name change the default");
  CLI::Option* insn_trace =
      command.add_option("--insn-trace", words->insn_trace, "every instruction, with its bytes or (=disasm) its text")->expected(0, 1);
  command.add_flag("--call-trace", words->call_trace, "an indented tree of calls");
  command.add_flag("--call-ret-trace", words->call_ret_trace, "the same with returns");
  add_thread_filters(command, words->cpus, words->pids, words->tids);
  command.add_option("--comm,--comms", words->comms, "these command names only; '\\,' is a comma in a name");
  command.add_option("-S,--symbols", words->symbols,
                     "only lines whose first address is in these functions, given by any of their names; wildcards allowed: 'sqlite3*'. "
                     "The call tree also shows their callees; JSON lists only the calls themselves");
  command
      .add_option("--time", words->times,
                  "from A to B, in seconds as printed: A,B or A, or ,B; also A,+5ms and 10%-20% and 14:03:05,14:03:06 (repeatable)")
      ->allow_extra_args(false);
  command
      .add_option("--diff", words->diff,
                  "where two runs of the same work, A and B, begin to differ: threads are matched by their name at the start of their last "
                  "program, functions by name")
      ->expected(2)
      ->type_name("A B")
      ->excludes("--input");
  add_fibre_option(command, words->fibres);
  command.add_flag("--tod", words->tod,
                   "show times as time of day, if the recording has it (perf record -k monotonic); -F +tod does the same");
  command.add_flag("--ns", words->ns, "show times with nine digits");
  command.add_flag("--full-names", words->full_names, "do not shorten names to fit the terminal");
  add_format_option(command, words->format, "text, or json: one object per line");
  command.add_option("--syntax", words->syntax, "of disassembly: att (default) or intel")->check(CLI::IsMember({"att", "intel"}));
  command.footer(
      "Without --itrace, -F, --call-trace or --insn-trace, script lists the tree of calls, each with its duration. ~ marks a duration "
      "that is estimated, because flow or a TSC is missing beside the call. Time off the cpu, time that was not traced and lost flow are "
      "in brackets. Branches and instructions have perf script's columns; DIFFERENCES.md lists the differences (in share/doc/ptdecode "
      "where ptdecode is installed, docs/ in the sources). Marks at the end of a line show uncertain code.\n"
      "--diff shows, for each thread, the first call that differs, and the first before it whose function executes another number of "
      "instructions. Interrupts and handlers of signals are left out, and counted. Exit status 3: a difference, or calls that were not "
      "compared. Limitation: nothing of a thread is compared after its flow was lost in one of the runs. Lines say where.\n"
      "Examples:\n"
      "  ptdecode script --comm postgres | less                   the tree of calls\n"
      "  ptdecode script -S exec_simple_query --time 30%-40%      only these calls and what they call\n"
      "  ptdecode script -S 'sqlite3*,*_hash'                      calls of the matching functions\n"
      "  ptdecode script --itrace=b --format json -F comm,time,ip,addr,sym  branches, as JSON\n"
      "  ptdecode script --format json | jq -c 'select(.call==\"commit\")'  calls, as JSON\n"
      "  ptdecode script --diff good.data bad.data                the first call that only one of two runs makes\n"
      "  ptdecode script --call-trace --comm postgres | less      callers and callees, thread by thread\n"
      "  ptdecode script --itrace=i1i -F ip -C 1                  every instruction's address on cpu 1\n"
      "  ptdecode script --insn-trace=disasm --time 17.9,17.901   one millisecond of disassembly");
  return [words, itrace, insn_trace] {
    words->has_itrace = itrace->count() != 0;
    words->has_insn_trace = insn_trace->count() != 0;
    return run_script(*words);
  };
}

}  // namespace ptd::cli
