// Input and words of the commands that follow calls: see call_input.h.
#include "cli/calls/call_input.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "analysis/names/short_name.h"
#include "analysis/paths/call_paths.h"
#include "cli/calls/loss_report.h"
#include "cli/options/exit_status.h"
#include "cli/options/progress.h"
#include "cli/options/thread_filters.h"
#include "cli/options/time_words.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "ptdecode/survey.h"
#include "recording/data/part_of_trace.h"

namespace ptd::cli {

void add_call_options(CLI::App& command, CallWords& words) {
  add_input_options(command, words.input);
  add_thread_filters(command, words.cpus, words.pids, words.tids);
  command.add_option("--comm,--comms", words.comms, "these command names only; '\\,' is a comma in a name");
  command.add_option(
      "--time", words.time,
      "from A to B: A,B in seconds; see 'ptdecode script --help'. Calls that began long before A are known once the flow returns to them");
}

void add_inline_option(CLI::App& command, CallWords& words) {
  words.inlined = true;
  command.add_flag(
      "--inline,!--no-inline", words.inlined,
      "list functions that are inlined in others as NAME (inlined), if there is debug information (default); --no-inline: only real calls");
}

void add_fibre_option(CLI::App& command, bool& fibres) {
  command.add_flag("--fibres", fibres,
                   "calls by user-level thread (fibre), where the program announces switches with PTWRITE (ANNOUNCE.md)");
}

void add_thread_option(CLI::App& command, unsigned& threads) {
  command.add_option("--threads", threads, "decode on this many threads (default: one per core)")->check(CLI::Range(1, 256));
}

Result<std::unique_ptr<CallInput>> CallInput::open(const CallWords& words) {
  auto made = std::make_unique<CallInput>();
  ScriptOptions& filter = made->filter_;
  if (Status status = parse_thread_filters({words.cpus, words.pids, words.tids}, filter); !status) return status.error();
  filter.comms = split_names(words.comms);
  if (Status status = words.time.empty() ? Status{} : check_time_words(words.time); !status) return status.error();
  Result<std::unique_ptr<Recording>> opened = words.trace_optional ? open_recording(words.input) : open_traced(words.input);
  if (!opened) return opened.error();
  made->recording_ = std::move(*opened);
  const Recording& recording = *made->recording_;
  if (!words.time.empty()) {
    const Result<Interval> range = read_time(words.time, recording);
    if (!range) return range.error();
    filter.times.push_back(*range);
  }
  made->has_time_ = cli::has_time(recording);
  if (is_part_of_trace(recording)) say_on_error(std::string("ptdecode: warning: ") + kPartOfTrace + "\n");
  for (const std::string& sentence : impossible_filters(filter, recording)) say_on_error("ptdecode: " + sentence + "\n");
  made->streams_ = matching_streams(filter, recording);
  for (const uint32_t stream : made->streams_) made->total_bytes_ += recording.streams()[stream].size_bytes;
  if (made->streams_.empty() && !words.trace_optional)
    return Error{ErrorCode::no_such_stream, "no trace stream of these cpus or threads", 0};
  return made;
}

CallInput::Known& CallInput::know(uint32_t index, const CallTree& tree) {
  if (index >= threads_.size()) threads_.resize(tree.threads().size());
  Known& known = threads_[index];
  if (known.known) return known;
  const CallThread& thread = tree.threads()[index];
  known.known = true;
  known.passes = among(filter_.pids, thread.pid) && among(filter_.tids, thread.tid);
  known.last_comm = recording_->comm_at(thread.tid, kTimeMax);
  return known;
}

bool CallInput::ever_wanted(uint32_t index, const CallTree& tree) {
  if (!know(index, tree).passes) return false;
  const CallThread& thread = tree.threads()[index];
  return ever_named(filter_, *recording_, thread.tid, {thread.first, thread.last});
}

bool CallInput::decide(const CallStep& step, const CallTree& tree) {
  Known& known = know(step.thread, tree);
  if (!known.passes || (!filter_.comms.empty() && !among(filter_.comms, comm(step, tree)))) return false;
  known.matched = true;
  return true;
}

bool CallInput::wanted(const OtherEvent& sample) const {
  return among(filter_.cpus, sample.cpu) && among(filter_.pids, sample.pid) && among(filter_.tids, sample.tid) &&
         (filter_.comms.empty() || among(filter_.comms, comm(sample)));
}

bool CallInput::wanted(const Mark& mark) const {
  return among(filter_.pids, mark.pid) && among(filter_.tids, mark.tid) &&
         (filter_.comms.empty() || among(filter_.comms, recording_->comm_at(mark.tid, mark.time.first)));
}

const std::string& CallInput::comm(const CallStep& step, const CallTree& tree) {
  Known& known = know(step.thread, tree);
  const bool ends = step.kind == CallStepKind::leave || step.kind == CallStepKind::on;
  const TimeNs when = ends ? step.start : step.time;
  if (!known.named.contains(when)) known.comm = recording_->comm_at(tree.threads()[step.thread].tid, when, &known.named);
  return known.comm;
}

std::string CallInput::label(const CallStep& step, const CallTree& tree) {
  const std::string& name = comm(step, tree);
  const int32_t tid = tree.threads()[step.thread].tid;
  return !name.empty() ? name : tid < 0 ? "unknown thread" : fmt::format(":{}", tid);
}

const std::string& CallInput::comm(uint32_t thread, const CallTree& tree) { return know(thread, tree).last_comm; }

/// Begins a decode of this input. Sets the streams, the times, the handling of gaps, and the display of progress.
template <typename Options>
void CallInput::set_up(Options& options, Progress& progress) {
  threads_.clear();  // of an earlier decode
  gaps_ = {};
  folded_ = uncounted_ = guessed_ = forgotten_ = undated_ = 0;
  progress.set_total(total_bytes_);
  options.streams = streams_;
  if (!filter_.times.empty()) options.time = filter_.times.front();
  options.on_gap = [this](const Gap& gap, const Mark& mark) {
    if (wanted(mark)) gaps_.add(gap);
  };
  options.on_rounds = [this](const Event&) { ++uncounted_; };
  stop_on_interrupt();
}

int CallInput::walk(const CallWords& words, const CallSink& sink, const WalkWants& wants) {
  Progress progress("decoding", !words.input.quiet && !is_terminal(1));
  CallWalkOptions options;
  set_up(options, progress);
  options.progress = [&progress](uint64_t bytes) { progress.add(bytes); };
  options.stopped = interrupted;
  options.threads = words.threads;
  options.enters = wants.enters;
  options.totals = wants.totals;
  options.inlined = words.inlined;
  options.fibres = words.fibres;
  const CallSink counting = [&](std::span<const CallStep> steps, const CallTree& tree) {
    for (uint32_t i = 0; tree.finished() && i < tree.threads().size(); ++i) {
      if (!ever_wanted(i, tree)) continue;
      folded_ += tree.threads()[i].folded;
      guessed_ += tree.threads()[i].guessed;
      forgotten_ += tree.threads()[i].forgotten;
      undated_ += tree.threads()[i].first == kTimeMin && tree.threads()[i].instructions != 0 ? 1 : 0;
      any_fibre_ = any_fibre_ || tree.threads()[i].fibre != 0;
    }
    return sink(steps, tree);
  };
  const Status status = walk_calls(*recording_, options, functions_, counting, &timed_);
  progress.finish();
  if (!status) return report_error(status.error());
  return ended(progress);
}

int CallInput::count(const CallWords& words, CodeCounts& counts) {
  return count(words, [&](const CodeCountOptions& options) {
    Result<CodeCounts> counted = count_code(*recording_, options);
    if (!counted) return Status(counted.error());
    counts = std::move(*counted);
    return Status{};
  });
}

int CallInput::count(const CallWords& words, const std::function<Status(const CodeCountOptions&)>& counting) {
  Progress progress("decoding", !words.input.quiet && !is_terminal(1));
  CodeCountOptions options;
  set_up(options, progress);
  if (!wants_all()) options.wanted = [this](const Mark& mark) { return wanted(mark); };
  options.progress = [&progress](uint64_t bytes) {
    progress.add(bytes);
    return !interrupted();
  };
  const Status counted = counting(options);
  progress.finish();
  if (!counted) return report_error(counted.error());
  return ended(progress);
}

// After Ctrl-C the results so far are still printed.
int CallInput::ended(const Progress& progress) {
  if (!interrupted()) return kExitOk;
  interrupted_at_ = progress.share();
  go_on_after_interrupt();
  return kExitInterrupted;
}

namespace {

std::string folded_text(uint64_t folded) {
  return fmt::format("{} deeper than the limit of {} open calls: not counted; their time is that of the deepest call counted",
                     counted(folded, "call was", "calls were"), CallTree::kMaxFrames);
}

std::string undated_text(uint64_t threads) {
  return fmt::format("{} without times, because no packet of their trace gives one: no time includes these calls",
                     counted(threads, "thread has calls", "threads have calls"));
}

std::string guessed_text(uint64_t guessed) {
  return fmt::format(
      "longjmp (or another jump) went on in a recursive function {}, where several of its open calls may have been meant: the ends of "
      "these calls may be wrong",
      counted(guessed, "time"));
}

std::string forgotten_text(uint64_t forgotten) {
  return fmt::format(
      "open calls were abandoned {} because the flow continued at a place that no call explains: these calls end there, and later calls "
      "lack their callers",
      counted(forgotten, "time"));
}

std::string uncounted_text(uint64_t times) {
  return fmt::format(
      "the flow was in a loop or recursion without packets {}: how often its code ran is not known, and its rounds count once; "
      "'ptdecode script --itrace=e' lists where",
      counted(times, "time"));
}

}  // namespace

std::vector<std::string> CallInput::doubts() const {
  std::vector<std::string> texts;
  if (folded_ != 0) texts.push_back(folded_text(folded_));
  if (timed_ && undated_ != 0) texts.push_back(undated_text(undated_));
  if (guessed_ != 0) texts.push_back(guessed_text(guessed_));
  if (forgotten_ != 0) texts.push_back(forgotten_text(forgotten_));
  if (uncounted_ != 0) texts.push_back(uncounted_text(uncounted_));
  return texts;
}

int CallInput::say_summary(const CallWords& words, bool any) const {
  const std::string why = any || interrupted_at_ ? std::string{} : nothing_matched(filter_, *recording_);
  if (!why.empty()) say_on_error("ptdecode: " + why + "\n");
  const int status = why.empty() ? kExitOk : kExitUsage;
  for (const std::string& doubt : doubts()) say_on_error("ptdecode: " + doubt + "\n");
  if (words.fibres && any && !any_fibre_)
    say_on_error("ptdecode: --fibres: no thread announces a fibre by PTWRITE, so that each has one stack of calls (ANNOUNCE.md)\n");
  say_on_error(symbol_warnings(*recording_));
  if (interrupted_at_) say_on_error(interrupt_text(*interrupted_at_, gaps_));
  if (!words.input.quiet) say_on_error(gap_summary(gaps_, *recording_, total_bytes_));
  return status;
}

std::string left_out_text(uint64_t left_out) {
  return fmt::format("{} beyond the limits of {} functions in a path and {} paths: counted as part of the caller",
                     counted(left_out, "call was", "calls were"), CallPaths::kMostDepth, CallPaths::kMostPaths - 1);
}

Result<Interval> read_time(std::string_view text, const Recording& recording) {
  if (!recording.has_time_conversion())
    return Error{ErrorCode::bad_time_window,
                 "--time: the recording has no times, because the frequency of the trace's clock is not known; give it with --clock-freq",
                 0};
  const TimeScale scale{dated_span(recording), wall_clock_offset(recording)};
  return parse_time_words(text, scale);
}

Status check_time_words(std::string_view text) {
  constexpr TimeScale kAny{{TimeNs{1}, TimeNs{4'000'000'000'000'000'000}}, 0};
  const Result<Interval> range = parse_time_words(text, kAny);
  const bool order = !range && range.error().message.find("ends before") != std::string::npos;  // may be fine on the recording's scale
  return range || order ? Status{} : Status(range.error());
}

std::string duration_text(uint64_t ns) {
  if (ns < 1000) return fmt::format("{} ns", ns);
  auto value = static_cast<double>(ns) / 1000;
  const char* unit = "us";
  for (const char* larger : {"ms", "s"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = larger;
  }
  return value < 9.995   ? fmt::format("{:.2f} {}", value, unit)
         : value < 99.95 ? fmt::format("{:.1f} {}", value, unit)
                         : fmt::format("{:.0f} {}", value, unit);
}

std::string moment_text(TimeNs time) { return fmt::format("{}.{:09}", time.value / 1'000'000'000, time.value % 1'000'000'000); }

std::string unmatched_text(const std::set<std::string>& modules) {
  if (modules.empty()) return {};
  return fmt::format("A and B have different builds of {}: code without a symbol in them is not compared\n",
                     shown(fmt::format("{}", fmt::join(modules, ", "))));
}

std::string untimed_text(size_t side, const CallInput& input) {
  return input.timed() ? std::string() : fmt::format("the times of {} are not known: {}\n", side == 0 ? 'A' : 'B', input.why_untimed());
}

std::string function_text(const FunctionTable& functions, FunctionId id, size_t width) {
  if (id == kNoFunction) return "[not traced]";
  return fit_function(functions.info(id).name, width);
}

}  // namespace ptd::cli
