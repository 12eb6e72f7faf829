// What `record` does with the kernel's events: see record_live.h.
#include "cli/record/record_live.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "capture/emulate/user_runner.h"
#include "capture/keep/code_saver_thread.h"
#include "capture/live/events/address_filter.h"
#include "capture/live/events/pmu_terms.h"
#include "capture/live/kernel/start_scan.h"
#include "capture/live/recorder.h"
#include "capture/live/session/session.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"
#include "image/base/inherited_signals.h"
#include "image/base/whole_file.h"

namespace ptd::cli {

namespace {

using live::RecordChoice;

/// A descriptor that is readable once a signal requests the end of this process. The signals have no other effect. What the caller ignored,
/// as nohup does, stays ignored, except SIGINT: shells ignore it in background commands, and scripts stop a recording with it.
int watch_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (number == SIGINT || !was_ignored(number)) sigaddset(&set, number);
  }
  (void)sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Result<live::RingWishes> parse_sizes(const std::string& text) {
  live::RingWishes wishes;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const size_t comma = text.find(',');
  const std::string data = text.substr(0, comma), aux = comma == std::string::npos ? "" : text.substr(comma + 1);
  if (!data.empty()) {
    const Result<uint64_t> bytes = live::parse_ring_bytes(data, page);
    if (!bytes) return bytes.error();
    wishes.data_bytes = *bytes;
  }
  if (!aux.empty()) {
    const Result<uint64_t> bytes = live::parse_ring_bytes(aux, page);
    if (!bytes) return bytes.error();
    wishes.aux_bytes = *bytes;
  }
  return wishes;
}

Result<live::TargetChoice> parse_target(const LiveWords& words) {
  live::TargetChoice target;
  if (!words.pids.empty()) {
    const Result<std::vector<int32_t>> pids = parse_number_list("-p", words.pids);
    if (!pids) return pids.error();
    target.pids = *pids;
  }
  if (!words.tids.empty()) {
    const Result<std::vector<int32_t>> tids = parse_number_list("-t", words.tids);
    if (!tids) return tids.error();
    target.tids = *tids;
  }
  if (!words.cpus.empty()) {
    const Result<std::vector<int32_t>> cpus = parse_number_list("-C", words.cpus);
    if (!cpus) return cpus.error();
    target.cpus = *cpus;
  }
  const bool some = !target.pids.empty() || !target.tids.empty();
  target.everything = words.everything || (!some && words.command.empty() && !target.cpus.empty());
  target.tree = words.tree;
  target.per_thread = words.per_thread;
  target.inherit = !words.no_inherit;
  const Error nobody{ErrorCode::contradictory_options, "record: nothing to record: give -p PID, -t TID, -a, -C CPUS, or a program after --",
                     0};
  if (!some && !target.everything && words.command.empty()) return nobody;
  if (some && (target.everything || !words.command.empty())) {
    return Error{ErrorCode::contradictory_options, "record: -p and -t cannot be combined with -a or a program", 0};
  }
  if (target.per_thread && target.everything)
    return Error{ErrorCode::contradictory_options, "record: --per-thread cannot be combined with -a or -C", 0};
  return target;
}

}  // namespace

Result<uint64_t> aux_sample_bytes(const std::string& text) {
  constexpr uint64_t kMostBytes = 60U << 10, kAlign = 8;  // as perf: a record has less than 64 KiB; the kernel aligns to words
  if (text.empty()) return uint64_t{0};
  const Result<uint64_t> bytes = parse_size("--aux-sample", text);
  if (!bytes) return bytes.error();
  if (*bytes == 0 || *bytes > kMostBytes)
    return Error{ErrorCode::bad_option, "record: --aux-sample: a sample holds 1 byte to 60K of trace, not " + text, 0};
  return (*bytes + kAlign - 1) / kAlign * kAlign;
}

namespace {

/// Chooses the events that sample, pause and resume the trace.
Status choose_companions(const LiveWords& words, live::TraceChoice& trace) {
  const auto add = [&trace](const std::string& option, const std::string& text, uint32_t aux_bytes, uint32_t action) {
    Result<live::CounterEvent> event = live::parse_counter_event(option, text);
    if (!event) return Status(event.error());
    event->spec.aux_sample_bytes = aux_bytes;
    event->spec.aux_action = action;
    trace.companions.push_back(std::move(*event));
    return Status();
  };
  const Result<uint64_t> bytes = aux_sample_bytes(words.aux_sample);
  if (!bytes) return bytes.error();
  if (*bytes != 0) {
    trace.sampled = true;
    trace.mode = perfio::AuxMode::overwrite;
    const perfio::EventSpec& levels = trace.event;
    const std::string usual = levels.exclude_kernel ? "cpu-clock:u" : levels.exclude_user ? "cpu-clock:k" : "cpu-clock";
    const std::string event = words.sample_on.empty() ? usual : words.sample_on;
    if (Status status = add("--sample-on", event, static_cast<uint32_t>(*bytes), 0); !status) return status;
  }
  for (const std::string& event : words.pause_on) {
    if (Status status = add("--pause-on", event, 0, perfio::kAuxPause); !status) return status;
  }
  for (const std::string& event : words.resume_on) {
    if (Status status = add("--resume-on", event, 0, perfio::kAuxResume); !status) return status;
  }
  if (!words.resume_on.empty()) trace.event.aux_action = perfio::kAuxStartPaused;
  return {};
}

Status refuse_useless_options(const LiveWords& words) {
  const bool needs_trace =
      !words.filter.empty() || words.snapshot || !words.aux_sample.empty() || !words.pause_on.empty() || !words.resume_on.empty();
  if (words.event.empty() && needs_trace)
    return Error{ErrorCode::contradictory_options,
                 "record: --filter, --snapshot, --aux-sample, --pause-on and --resume-on need a trace: -e intel_pt//", 0};
  if (!words.trigger.empty() && words.detach.empty())
    return Error{ErrorCode::contradictory_options, "record: --trigger needs a detached recording: --detach NAME", 0};
  if (!words.sample_on.empty() && words.aux_sample.empty())
    return Error{ErrorCode::contradictory_options, "record: --sample-on needs --aux-sample", 0};
  if (!words.aux_sample.empty() && words.snapshot)
    return Error{ErrorCode::contradictory_options,
                 "record: --aux-sample cannot be combined with --snapshot and --detach, which record the buffer itself", 0};
  return {};
}

/// The trace's event, its filter and its header.
Status choose_trace(const LiveWords& words, RecordChoice& choice) {
  if (Status status = refuse_useless_options(words); !status || words.event.empty()) return status;
  const Result<live::PmuEvent> event = live::parse_pmu_event(words.event);
  if (!event) return event.error();
  live::TraceChoice trace;
  trace.event = event->spec;
  trace.name = event->text;
  trace.mode = words.snapshot ? perfio::AuxMode::overwrite : perfio::AuxMode::full;
  if (!words.filter.empty()) {
    const Result<std::string> kallsyms = live::read_text_file("/proc/kallsyms");
    const auto ranges = event->pmu.caps.find("num_address_ranges");
    const Result<std::string> filter =
        live::resolve_filter(words.filter, kallsyms.ok() ? *kallsyms : "", ranges == event->pmu.caps.end() ? 0 : ranges->second);
    if (!filter) return filter.error();
    trace.filter = *filter;
  }
  if (Status status = choose_companions(words, trace); !status) return status;
  live::TraceSetup setup;
  setup.snapshot = words.snapshot;
  setup.per_cpu = !choice.target.per_thread;
  setup.whole_cpus = choice.target.everything;
  setup.filter = trace.filter;
  setup.cpus = choice.target.cpus.empty() ? live::online_cpus() : choice.target.cpus;
  live::read_tsc_ratio(setup);
  choice.trace = trace;
  const live::PmuEvent known = *event;
  choice.make_info = [known, setup](const perfio::TimeConvRecord* clock) { return live::make_auxtrace_info(known, setup, clock); };
  return {};
}

Result<RecordChoice> choose(const LiveWords& words) {
  RecordChoice choice;
  const Result<live::TargetChoice> target = parse_target(words);
  if (!target) return target.error();
  const Result<live::RingWishes> wishes = parse_sizes(words.sizes);
  if (!wishes) return wishes.error();
  choice.target = *target;
  choice.wishes = *wishes;
  choice.output = words.output;
  choice.directory = words.directory;
  choice.kcore = words.kcore;
  choice.compression_level = words.compress ? words.level : 0;
  choice.command = words.command;
  choice.announcements = !words.no_announce;
  choice.cmdline = {"ptdecode", "record"};
  if (Status status = choose_trace(words, choice); !status) return status.error();
  if (words.output == "-" && (words.directory || words.kcore)) {
    return Error{ErrorCode::contradictory_options, "record: -o - writes the pipe form; --directory and --kcore need a file name", 0};
  }
  if (words.output == "-" && is_terminal(1)) {
    return Error{ErrorCode::bad_output, "record: -o - writes a recording to standard output, which is a terminal", 0};
  }
  return choice;
}

std::string summary(const LiveWords& words, const live::RecordReport& report) {
  std::string text = fmt::format("ptdecode: {}: {} bytes, {} records", shown(words.output), report.file_bytes, report.records);
  if (report.aux_bytes != 0) text += fmt::format(", {} bytes of trace", report.aux_bytes);
  if (report.kernel.bpf_programs != 0) text += fmt::format(", {} BPF programs", report.kernel.bpf_programs);
  text += "\n";
  if (report.aux_truncated != 0) {
    text += fmt::format("ptdecode: the trace was cut {} because its buffer was full: enlarge it with -m ,SIZE\n",
                        counted(report.aux_truncated, "time"));
  }
  if (report.lost_records != 0)
    text += fmt::format("ptdecode: {} lost because a buffer was full: enlarge it with -m SIZE\n",
                        counted(report.lost_records, "record was", "records were"));
  if (report.kernel.bpf_gone != 0)
    text += fmt::format("ptdecode: {} BPF programs were unloaded before their code was read\n", report.kernel.bpf_gone);
  return text;
}

}  // namespace

void add_live_options(CLI::App& command, LiveWords& words) {
  command.add_flag("--sideband", words.sideband, "no trace: mappings, processes, switches, BPF, changes of the kernel's code");
  command.add_option("-e,--event", words.event, "the trace: PMU/TERMS/LEVELS, as intel_pt/cyc,mtc_period=3/u or cs_etm/@tmc_etr0/k");
  command.add_option("-p,--pid", words.pids, "running processes, with all their threads: 1,3-5");
  command.add_option("-t,--tid", words.tids, "single running threads");
  command.add_flag("--tree", words.tree, "with -p: also their descendants");
  command.add_flag("-a,--all-cpus", words.everything, "everything on all cpus");
  command.add_option("-C,--cpu", words.cpus, "these cpus only: 0,2-3");
  command.add_flag("--per-thread", words.per_thread, "one buffer per thread instead of per cpu; threads that it starts are not recorded");
  command.add_flag("--no-inherit", words.no_inherit, "do not record processes and threads that the target starts");
  command.add_option("-m,--mmap-pages", words.sizes, "DATA,AUX: buffers of each cpu, in pages or with K, M, G")->type_name("SIZES");
  command.add_option("--filter", words.filter, "trace only some code: 'filter main @ /bin/ls', 'start F1,stop F2'");
  command.add_flag("--snapshot", words.snapshot,
                   "let the trace overwrite the oldest part of its buffer; the recording contains the last "
                   "part");
  command
      .add_option("--sample-on", words.sample_on,
                  "with --aux-sample: the event that is sampled, EVENT[@PERIOD]: branch-misses:u@1000, sched:sched_switch\n"
                  "(default cpu-clock: a sample each ms)")
      ->type_name("EVENT");
  command.add_option("--pause-on", words.pause_on, "pause the trace when EVENT happens (Linux 6.13); may be repeated")->type_name("EVENT");
  command.add_option("--resume-on", words.resume_on, "start paused, and resume the trace when EVENT happens (Linux 6.13); may be repeated")
      ->type_name("EVENT");
  command.add_option("--detach", words.detach, "return at once; the session continues until ptdecode stop NAME")->type_name("NAME");
  command
      .add_option("--trigger", words.trigger,
                  "with --detach: write a snapshot to OUTPUT when a function is called (uprobe:FILE:FUNCTION), or when a call\n"
                  "of it was slow (uprobe:FILE:FUNCTION,duration>5ms)")
      ->type_name("PROBE");
  command
      .add_option("--trigger-most", words.trigger_most,
                  "with --trigger: write at most N snapshots, OUTPUT, OUTPUT.2, ... (default 1), and at most one each second")
      ->type_name("N");
  command.add_flag("--directory", words.directory, "write perf's directory form");
  command.add_flag("--kcore", words.kcore, "also copy the kernel's code, before and after (directory form)");
  command.add_flag("-z,--compress", words.compress, "compress the kernel's records (zstd)");
}

namespace {

/// "uprobe:FILE:FUNCTION[,duration>5ms]"
Result<live::TriggerChoice> parse_trigger(const std::string& text) {
  constexpr std::string_view kCondition = ",duration>";
  const size_t condition = text.rfind(kCondition);
  uint64_t duration_ns = 0;
  if (condition != std::string::npos) {
    const std::string words = text.substr(condition + kCondition.size());
    const Result<uint64_t> parsed = parse_duration_ns(words);
    if (!parsed || *parsed == 0)
      return Error{ErrorCode::bad_option,
                   "record: --trigger: '" + text.substr(condition + 1) + "' is not a duration such as duration>5ms (ns, us, ms, s)", 0};
    duration_ns = *parsed;
  }
  return live::find_trigger(text.substr(0, condition), duration_ns);
}

// Snapshots of a trigger: they are written when no command runs that could say why one failed.
Status check_snapshots(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return Error{ErrorCode::bad_output, "record: -o " + path + " is a folder", 0};
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return Error{ErrorCode::bad_output,
                 "record: -o " + path + ": no file can be written to " + folder + ": " + std::generic_category().message(errno), 0};
  return check_output(path, kRecordingOutput);
}

int start_detached(const LiveWords& words, const RecordChoice& choice) {
  if (words.directory || words.kcore || words.compress || (words.output != "perf.data" && words.trigger.empty())) {
    return report_error({ErrorCode::contradictory_options, "record: with --detach, ptdecode snapshot writes the file", 0});
  }
  live::SessionChoice session;
  if (!words.trigger.empty()) {
    Result<live::TriggerChoice> trigger = parse_trigger(words.trigger);
    if (!trigger) return report_error(trigger.error());
    std::error_code error;
    session.self_snapshots =
        live::SelfSnapshots{std::move(*trigger), std::filesystem::absolute(words.output, error).string(), words.trigger_most};
    if (error) return report_error({ErrorCode::bad_output, "record: -o " + words.output + ": " + error.message(), 0});
    if (const Status fit = check_snapshots(session.self_snapshots->output); !fit) return report_error(fit.error());
  }
  session.name = words.detach;
  session.target = choice.target;
  session.trace = choice.trace;
  session.wishes = choice.wishes;
  session.make_info = choice.make_info;
  session.command = choice.command;
  session.announcements = choice.announcements;
  session.what = choice.trace ? choice.trace->name : "sideband";
  if (choice.target.everything) session.what += " of all threads";
  if (!words.pids.empty()) session.what += " of " + words.pids;
  if (!words.tids.empty()) session.what += " of threads " + words.tids;
  for (const std::string& word : choice.command) session.what += " " + word;
  const Result<std::vector<std::string>> notes = live::start_session(session);
  if (!notes) return report_error(notes.error());
  for (const std::string& note : *notes) {
    if (!words.quiet) say_on_error("ptdecode: " + note + "\n");
  }
  if (!words.quiet)
    say_on_error(fmt::format("ptdecode: session '{0}' runs: ptdecode snapshot {0} -o FILE; ptdecode stop {0}\n", words.detach));
  return kExitOk;
}

live::CodeSaverHooks hooks_of(const std::shared_ptr<CodeSaverThread>& saver) {
  live::CodeSaverHooks hooks;
  hooks.on_mapping = [saver](const perfio::MmapRecord& map, uint64_t time_ns) { saver->on_mapping(map, time_ns); };
  hooks.on_round = [saver](const live::RecordRound& round) {
    saver->on_round({round.now_ns, round.slack_ns, round.begun_ns, round.file_bytes});
  };
  hooks.on_lost = [saver] { saver->on_lost(); };
  hooks.is_settled = [saver] { return saver->is_settled(); };
  hooks.pause = [saver] { return saver->pause(); };
  hooks.go_on = [saver] { saver->go_on(); };
  hooks.take_over = [saver] { saver->take_over(); };
  hooks.on_taken_over = [saver] { (void)saver->finish(); };
  return hooks;
}

}  // namespace

int refuse_program(const Error& error) {
  (void)report_error(error);
  return error.code == ErrorCode::not_found ? kExitNoProgram : kExitCannotRun;
}

int record_live(const LiveWords& words, const StashWords& stash) {
  LiveWords asked = words;
  asked.snapshot = words.snapshot || (!words.detach.empty() && !words.event.empty());
  Result<RecordChoice> choice = choose(asked);
  if (!choice) return report_error(choice.error());
  Result<std::string> program = choice->command.empty() ? std::string() : emulate::find_program(choice->command.front());
  if (!program) return refuse_program(program.error());
  if (!words.detach.empty()) return start_detached(words, *choice);
  if (Status status = check_not_program(words.output, *program); !status) return report_error(status.error());
  const std::shared_ptr<CodeSaverThread> saver = begin_saving(words.output, stash);
  if (saver) choice->saver = hooks_of(saver);
  standard_output().flush();
  choice->stop_fd = watch_signals();
  Result<std::unique_ptr<live::Recorder>> recorder = live::Recorder::start(*choice);
  if (!recorder) return report_error(recorder.error());
  size_t told = 0;
  const auto tell_notes = [&] {
    const std::vector<std::string>& notes = (*recorder)->report().notes;
    for (; told < notes.size() && !words.quiet; ++told) say_on_error("ptdecode: " + notes[told] + "\n");
  };
  tell_notes();
  const Status ran = (*recorder)->run();
  const Status finished = (*recorder)->finish();
  tell_notes();
  if (!ran.ok() || !finished.ok()) {
    const bool refused = !ran.ok() && (ran.error().code == ErrorCode::not_found || ran.error().code == ErrorCode::start_failed);
    const int status = refused ? refuse_program(ran.error()) : report_error(ran.ok() ? finished.error() : ran.error());
    // What was complete is a recording, and needs its code too. Of a refused program there is none.
    std::error_code error;
    if (!refused && saver && std::filesystem::exists(words.output, error)) end_saving(*saver, words.quiet);
    return status;
  }
  const live::RecordReport& report = (*recorder)->report();
  if (!words.quiet || report.lost_records != 0) say_on_error(summary(words, report));
  if (saver) end_saving(*saver, words.quiet);
  return report.exit_status >= 0 ? report.exit_status : kExitOk;
}

}  // namespace ptd::cli
