// `ptdecode record`: makes a recording of this machine, or where the processor cannot, under the emulator.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "capture/emulate/user_runner.h"
#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/record/record_live.h"
#include "cli/record/record_system.h"
#include "cli/report/stash_words.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

namespace {

constexpr unsigned kPsbShift = 11;  // PSBFreq n: 2^(n + 11) bytes
constexpr const char* kAuxSampleEvery = "16K";

struct RecordWords {
  emulate::EmulateOptions options;
  LiveWords live;
  SystemWords system;
  unsigned psb_period = 3, mtc_period = 9, cyc_threshold = 0;
  std::string emulate;  // "": not; "user", "system"
  bool no_retcomp = false, short_tnt = false, no_tsc = false, no_mtc = false, cyc = false, no_dates = false, no_announce = false,
       no_ran_code = false, quiet = false;
  StashWords stash;
  std::string recover, most, aux_sample, aux_sample_every;
  const CLI::App* command = nullptr;
  const CLI::Option* output = nullptr;
  std::vector<const CLI::Option*> live_options, emulate_options;  ///< that only make sense without or with --emulate
};

/// Returns those that were typed: "-e, --kcore"; empty if none was.
std::string given_names(const std::vector<const CLI::Option*>& options) {
  std::string names;
  for (const CLI::Option* option : options) {
    if (option->count() == 0) continue;
    const std::vector<std::string>& letters = option->get_snames();
    names += (names.empty() ? "" : ", ") + (letters.empty() ? "--" + option->get_lnames().front() : "-" + letters.front());
  }
  return names;
}

/// Returns the options that `add` adds.
template <typename Add>
std::vector<const CLI::Option*> added_options(CLI::App& command, const Add& add) {
  const size_t before = command.get_options().size();
  add();
  const std::vector<const CLI::Option*> all = std::as_const(command).get_options();
  return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
}

// Without --emulate: what there is instead.
int explain() {
  std::error_code error;
  const bool has_pt = std::filesystem::exists("/sys/bus/event_source/devices/intel_pt", error);
  std::string text;
  if (has_pt) {
    text =
        "ptdecode: record: no program is given. This machine can trace:\n"
        "  ptdecode record -e intel_pt//u -- PROGRAM      then: ptdecode script\n"
        "or, slower and on any machine: ptdecode record --emulate -- PROGRAM\n";
  } else {
    text =
        "ptdecode: this machine cannot trace: it has no intel_pt event (/sys/bus/event_source/devices/intel_pt is missing). The processor\n"
        "is not Intel's, this is a virtual machine without Intel PT, or the firmware or kernel disables it.\n"
        "An emulator can write the same trace for programs in user mode:\n"
        "  ptdecode record --emulate -- PROGRAM ARGUMENTS      (needs qemu-user: apt install qemu-user)\n"
        "The kernel's other records (mappings, processes, switches, its own code) can be recorded everywhere:\n"
        "  ptdecode record --sideband -- PROGRAM ARGUMENTS\n";
  }
  say_on_error(text);
  return kExitUsage;
}

// With -q, only what is missing from the recording.
std::string summary_text(const RecordWords& words, const emulate::EmulateResult& result) {
  const emulate::RecordingSummary& s = result.summary;
  const std::string trace = s.sampled ? fmt::format("{} executed, {} with {} bytes of trace", counted(s.instructions, "instruction"),
                                                    counted(s.samples, "AUX sample"), s.packet_bytes)
                                      : fmt::format("{} instructions, {} bytes of trace", s.instructions, s.packet_bytes);
  std::string text = fmt::format("ptdecode: {}: {}, {}, {}, {}{}\n", shown(words.options.output), trace,
                                 counted(s.processes, "process", "processes"), counted(s.threads, "thread"), counted(s.programs, "program"),
                                 result.run_s != 0 ? fmt::format(" run in {:.2f} s", result.run_s) : "");
  if (words.quiet) text.clear();
  if (s.sampled && s.samples == 0)
    text += fmt::format(
        "ptdecode: no AUX sample was taken: the trace of each thread is shorter than --aux-sample-every ({}); give a smaller one\n",
        words.aux_sample_every.empty() ? kAuxSampleEvery : words.aux_sample_every);
  if (s.killed_threads != 0) {
    text += fmt::format("ptdecode: {} killed: the last few instructions that {} ran are not known, and the recording has a gap there\n",
                        s.killed_threads == 1 ? "1 thread was" : counted(s.killed_threads, "thread") + " were",
                        s.killed_threads == 1 ? "it" : "they");
  }
  if (s.code_loads != 0 && !words.quiet)
    text += fmt::format("ptdecode: {} of code from no file (JIT): {}.jit\n", counted(s.code_loads, "piece"), shown(words.options.output));
  if (s.overflows != 0 && !words.quiet)
    text += fmt::format("ptdecode: packets were lost {}, as requested by --ovf\n", counted(s.overflows, "time"));
  if (s.irregular != 0)
    text += fmt::format("ptdecode: the flow was lost {}: the emulator did not report where it continued\n", counted(s.irregular, "time"));
  for (const std::string& warning : s.warnings) text += "ptdecode: " + warning + "\n";
  return text;
}

// The recording of a recorder that was killed.
int recover(RecordWords& words) {
  Result<emulate::EmulateResult> result =
      emulate::recover(words.recover, words.output->count() != 0 ? words.options.output : std::string());
  if (!result) return report_error(result.error());
  words.options.output = result->output;
  say_on_error(summary_text(words, *result));
  keep_recorded(result->output, words.stash, words.quiet);
  return kExitOk;
}

void set_packets(RecordWords& words) {
  emulate::EmulateOptions& options = words.options;
  emulate::PtEncoderOptions& pt = options.config.pt;
  options.psb_period = static_cast<uint8_t>(words.psb_period);
  pt.psb_period_bytes = 1U << (words.psb_period + kPsbShift);
  pt.mtc_period = static_cast<uint8_t>(words.mtc_period);
  pt.cyc_threshold = static_cast<uint8_t>(words.cyc_threshold);
  pt.return_compression = !words.no_retcomp;
  pt.long_tnt = !words.short_tnt;
  pt.tsc = !words.no_tsc;
  pt.mtc = !words.no_mtc && !words.no_tsc;
  pt.cyc = words.cyc;
}

// Sets the limit of the logs, and the sizes of AUX samples. A window of the default size has PSBs only if they are as frequent as possible.
Status set_sizes(RecordWords& words) {
  emulate::UserConfig& config = words.options.config;
  if (!words.most.empty()) {
    const Result<uint64_t> most = parse_size("--max-size", words.most);
    if (!most) return most.error();
    config.most_log_bytes = *most;
  }
  const Result<uint64_t> size = aux_sample_bytes(words.aux_sample);
  if (!size) return size.error();
  if (*size == 0 && words.aux_sample_every.empty()) return {};
  if (*size == 0) return Error{ErrorCode::contradictory_options, "record: --aux-sample-every needs --aux-sample", 0};
  config.aux_sample_bytes = *size;
  const Result<uint64_t> every =
      parse_size("--aux-sample-every", words.aux_sample_every.empty() ? kAuxSampleEvery : words.aux_sample_every);
  if (!every) return every.error();
  config.pt.pause_every_bytes = *every;
  if (words.command->get_option("--psb-period")->count() == 0) {
    words.options.psb_period = 0;
    config.pt.psb_period_bytes = 1U << kPsbShift;
  }
  // Samples at multiples of it would have their PSBs at one place, which may be the end.
  config.pt.psb_period_bytes -= config.pt.psb_period_bytes / 20;
  return {};
}

// --ete is for aarch64 programs only.
Status check_ete(const emulate::EmulateOptions& options) {
  constexpr uint16_t kMachineAarch64 = 183;
  if (!options.config.ete || options.command.empty()) return {};
  const auto program = emulate::find_program_to_run(options.command);
  if (!program || program->machine == kMachineAarch64) return {};
  return Error{ErrorCode::contradictory_options, "record: --ete is for programs for aarch64", 0};
}

// The whole machine. Its time is the number of executed instructions, and its code is that of files and of the kernel.
int run_system(RecordWords& words) {
  for (const char* name : {"--aux-sample", "--aux-sample-every", "--work-clock", "--ovf", "--no-ran-code", "--no-date-code", "--max-size",
                           "--no-tsc", "--no-announce"}) {
    if (words.command->get_option(name)->count() != 0)
      return report_error({ErrorCode::contradictory_options, std::string("record: ") + name + " is not for --emulate=system", 0});
  }
  constexpr uint8_t kMtcPeriod = 3;  // 320 ns: the kernel's changes of its code are dated by MTC packets
  emulate::SystemOptions& system = words.system.options;
  const emulate::EmulateOptions& options = words.options;
  system.pt = options.config.pt;
  if (words.command->get_option("--mtc-period")->count() == 0) system.pt.mtc_period = kMtcPeriod;
  system.psb_period = options.psb_period;
  system.ete = options.config.ete;
  system.output = options.output;
  system.truth_folder = options.truth_folder;
  system.emulator = options.qemu;
  system.plugin = options.plugin;
  system.command = options.command;
  return record_system(words.system, words.stash, words.quiet);
}

void say_survivors(const std::vector<pid_t>& pids) {
  constexpr size_t kNamed = 5;
  std::string names;
  for (size_t i = 0; i < std::min(kNamed, pids.size()); ++i) names += (i == 0 ? "" : ", ") + std::to_string(pids[i]);
  if (pids.size() > kNamed) names += ", ...";
  say_on_error(fmt::format(
      "the program has ended, and {} that it started still run{} ({}). The recording ends with the last of them; Ctrl-C kills them and "
      "ends it now.\n",
      pids.size() == 1 ? "1 process" : std::to_string(pids.size()) + " processes", pids.size() == 1 ? "s" : "", names));
}

int run_record(RecordWords& words) {
  emulate::EmulateOptions& options = words.options;
  if (!words.recover.empty()) return recover(words);
  if (words.emulate.empty() && (words.live.sideband || !words.live.event.empty())) {
    if (const std::string given = given_names(words.emulate_options); !given.empty())
      return report_error({ErrorCode::contradictory_options, "record: without --emulate, these options have no effect: " + given, 0});
    words.live.output = options.output;
    words.live.command = options.command;
    words.live.quiet = words.quiet;
    words.live.aux_sample = words.aux_sample;
    words.live.no_announce = words.no_announce;
    return record_live(words.live, words.stash);
  }
  if (words.emulate != "system" && words.system.typed(*words.command))
    return report_error(
        {ErrorCode::contradictory_options, "record: --kernel, --cpus, --memory, --events and --boot are for --emulate=system", 0});
  if (words.emulate.empty()) return explain();
  if (const std::string given = given_names(words.live_options); !given.empty())
    return report_error(
        {ErrorCode::contradictory_options, "record: --emulate cannot be combined with options of the kernel's events: " + given, 0});
  if (Status status = check_ete(options); !status) return report_error(status.error());
  set_packets(words);
  if (words.emulate == "system") return run_system(words);
  if (options.command.empty())
    return report_error({ErrorCode::contradictory_options, "record: no program is given: ptdecode record --emulate -- PROGRAM", 0});
  if (const auto program = emulate::find_program_to_run(options.command); !program.ok()) return refuse_program(program.error());
  options.config.announce = !words.no_announce && !options.config.work_clock;  // announcements have the processor's clock
  options.config.ran_code = !words.no_ran_code;
  options.config.date_changes = !words.no_dates && options.config.pt.tsc;
  options.on_stopped = [](const std::string& folder) {
    say_on_error(
        "recording stopped: the disk of the working folder " + folder +
        " is nearly full, the folder is out of reach, or a limit is reached (--max-size, ulimit -f). The program runs on and is not "
        "recorded.\n");
  };
  options.on_survivors = say_survivors;
  if (Status status = set_sizes(words); !status) return report_error(status.error());
  standard_output().flush();
  const Result<emulate::EmulateResult> result = emulate::emulate(options);
  if (!result) return report_error(result.error());
  options.output = result->output;
  say_on_error(summary_text(words, *result));
  keep_recorded(options.output, words.stash, words.quiet);
  return result->exit_status;
}

void add_packet_options(CLI::App& command, RecordWords& words) {
  constexpr unsigned kMost = 15;
  command.add_option("--psb-period", words.psb_period, "a PSB every 2^(N+11) bytes (default 3: 16 KiB)")->check(CLI::Range(0U, kMost));
  command.add_option("--mtc-period", words.mtc_period, "an MTC every 2^N ticks of the crystal clock, of 256 TSC ticks each (default 9)")
      ->check(CLI::Range(0U, kMost));
  command.add_flag("--cyc", words.cyc,
                   "write CYC packets: cycles at each packet of branches. One packet has up to 47 branches; with --short-tnt up to 6");
  command.add_option("--cyc-thresh", words.cyc_threshold, "with --cyc: at least 2^(N-1) cycles between two CYC packets")
      ->needs("--cyc")
      ->check(CLI::Range(0U, kMost));
  command.add_flag("--no-retcomp", words.no_retcomp, "no return compression");
  command.add_flag("--short-tnt", words.short_tnt, "at most 6 branches per packet, like older processors (default: up to 47)");
  command.add_flag("--no-mtc", words.no_mtc, "no MTC packets: time at PSB only");
  command.add_flag("--no-tsc", words.no_tsc, "no timestamps");
  command.add_flag("--work-clock", words.options.config.work_clock,
                   "take time from the number of executed instructions, at 2 GHz, not from the clock, so that equal runs give equal "
                   "traces; all threads share this clock, so that a thread's times contain what others ran meanwhile");
  command.add_option("--ovf", words.options.config.overflow_bytes, "lose packets (OVF) after every N bytes, to test the decoder");
  command.add_flag("--no-ran-code", words.no_ran_code,
                   "write no generated code as it ran: like hardware, know only what the program announces (libptd-announce)");
  command.add_flag("--no-date-code", words.no_dates,
                   "write no PSB when code changes, like hardware. Code that is rewritten between two timing packets can then be decoded\n"
                   "wrongly, without a mark");
}

void add_emulate_options(CLI::App& command, RecordWords& words) {
  command.add_option("--truth", words.options.truth_folder, "also write the ground truth for 'ptdecode verify': DIR/truth.tidN.ptt");
  add_packet_options(command, words);
  command.add_flag("--ete", words.options.config.ete,
                   "for aarch64 programs: an ETE trace, which processors of Armv9 write, in place of ETMv4");
  command.add_option(
      "--emulator,--qemu", words.options.qemu,
      "a qemu-user that loads plugins (default: qemu-x86_64 or qemu-aarch64, depending on the program: the first in PATH that\n"
      "does, else one that 'ptdecode emulator build' has built)");
  command.add_option("--plugin", words.options.plugin, "ptdecode-emulate.so, if it is not in its build or installation folder");
  command
      .add_option("--aux-sample-every", words.aux_sample_every, "with --aux-sample: a sample after every SIZE bytes of trace (default 16K)")
      ->type_name("SIZE");
  command
      .add_option("--max-size", words.most, "stop recording when the logs of --emulate need this much disk space: 500M (default: no limit)")
      ->type_name("SIZE");
}

}  // namespace

Command add_record(CLI::App& app) {
  auto words = std::make_shared<RecordWords>();
  CLI::App& command = *app.add_subcommand("record", "Record a trace on this machine, or in an emulator if it cannot trace");
  words->live_options = added_options(command, [&] { add_live_options(command, words->live); });
  command.add_flag("--no-announce", words->no_announce, "do not listen to what run-times announce of their code (libptd-announce)");
  words->command = &command;
  command
      .add_flag(
          "--emulate{user}", words->emulate,
          "run the program in qemu-user and write the trace that a processor would write. --emulate=system: in a machine of its own,\n"
          "with a kernel, whose code is recorded too")
      ->check(CLI::IsMember({"user", "system"}));
  add_system_options(command, words->system);
  command
      .add_flag("--aux-sample{4K}", words->aux_sample,
                "record samples instead of the whole trace: with each sample of another event, the last SIZE bytes of trace before it\n"
                "(default 4K, at most 60K). --sample-on names that event. With --emulate, see --aux-sample-every")
      ->type_name("SIZE");
  words->output = command.add_option("-o,--output", words->options.output,
                                     "the recording (default perf.data); a file of this name is kept as NAME.old");
  words->emulate_options = added_options(command, [&] { add_emulate_options(command, *words); });
  command.add_option("--recover", words->recover,
                     "complete a recording of --emulate whose processes were all killed, from the folder OUTPUT.work-XXXXXX that they "
                     "left");
  add_stash_options(command, words->stash);
  command.add_flag("-q,--quiet", words->quiet, "no summary, but what is missing from the recording");
  command.add_option("program", words->options.command, "the program and its arguments, after --");
  command.footer(
      "The exit status is the program's; 127 if it does not exist and 126 if it cannot be run. Processes and threads that it starts are "
      "recorded too. With --emulate, programs for x86-64 get an Intel PT trace and those for aarch64 a CoreSight trace (ETMv4, or "
      "--ete). Generated code is written to OUTPUT.jit, for ptdecode and for perf inject --jit.\n"
      "A CoreSight trace has a timestamp every 16,384 ticks of the TSC (about 6 us) and at both ends of each system call, and counts no "
      "cycles: --cyc, --cyc-thresh, --mtc-period, --no-mtc, --no-tsc, --no-retcomp and --short-tnt are for Intel PT.\n"
      "Without --emulate, the kernel's perf events are recorded. Recording ends with PROGRAM, with the last thread of -p and -t, or with "
      "Ctrl-C; recorded processes continue to run.\n"
      "If the recorder is killed, a second process completes the file. If that is killed too, the logs of --emulate stay in "
      "OUTPUT.work-XXXXXX, and --recover completes the recording from them.\n"
      "Examples:\n"
      "  ptdecode record -e intel_pt//u -- ls -l                trace with the processor\n"
      "  ptdecode record -e intel_pt/cyc,noretcomp/k -a --kcore trace the kernel on all cpus until Ctrl-C\n"
      "  ptdecode record --sideband -p 4711 --tree              processes and their events, without a trace\n"
      "  ptdecode record --emulate -- ls -l                     writes ./perf.data\n"
      "  ptdecode record --emulate --truth T -- ls && ptdecode verify T/truth.*");
  return [words] { return run_record(*words); };
}

}  // namespace ptd::cli
