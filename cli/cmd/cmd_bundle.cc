// `ptdecode bundle`: a recording with exactly what its decode needs, in one file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <span>

#include "cli/calls/call_input.h"
#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/options/progress.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"
#include "recording/bundle/requested_bundle.h"
#include "recording/lldb/lldb_write.h"

namespace ptd::cli {

namespace {

struct BundleWords {
  InputOptions input;
  std::string recording, output, time, format = "ptdecode";
  bool dry_run = false;
};

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

std::string report_text(const BundleReport& report, const std::string& path) {
  return fmt::format(
      "{}: {} bytes\n"
      "  trace    {:10.3f} MB of {:.3f} MB, {} of {} segments, {} instructions\n"
      "  code     {:10.3f} MB of {:.3f} MB that were mapped\n"
      "  symbols  {:10}\n",
      path, report.file_bytes, megabytes(report.aux_bytes), megabytes(report.aux_total_bytes), report.segments, report.segments_total,
      report.instructions, megabytes(report.code_bytes), megabytes(report.code_total_bytes), report.symbols);
}

/// Lists what a bundle contains, and the files that it lacks because nothing proves that they are the recorded ones.
std::string parts_text(const BundleReport& report) {
  std::string text = fmt::format("{:>12} {:>8}  {}\n", "bytes", "names", "file (reason)");
  for (const BundlePart& part : report.parts)
    text += fmt::format("{:>12} {:>8}  {} ({})\n", part.bytes, part.symbols, shown(part.file), shown(part.why));
  for (const MissingImage& missing : report.missing)
    text += fmt::format("{:>12} {:>8}  {} (left out: {})\n", 0, 0, shown(missing.path), shown(missing.reason));
  return text + fmt::format("{:>12} {:>8}  in all, compressed\n", report.file_bytes, "");
}

/// Returns a message that lists the files whose code ran and that the bundle lacks; empty if there are none.
std::string missing_code_text(const BundleReport& report) {
  std::string text;
  for (const MissingImage& missing : report.missing) {
    if (missing.gaps != 0) text += fmt::format("  {}  {} ({})\n", counted(missing.gaps, "gap"), shown(missing.path), shown(missing.reason));
  }
  return text.empty() ? text
                      : "ptdecode: the bundle lacks code that ran; its flow is lost where the recording went through these files:\n" + text;
}

void say_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) say_on_error("ptdecode: warning: " + shown(warning) + "\n");
}

/// Absolute times need no recording, which may be a pipe; the others are relative to its times.
Result<Interval> time_to_keep(const BundleWords& words) {
  if (words.time.find_first_of("%+:") == std::string::npos) return parse_time_range(words.time);
  const Result<std::unique_ptr<Recording>> recording = open_recording(words.input.repeated());
  if (!recording) return recording.error();
  Result<Interval> range = read_time(words.time, **recording);
  if (!range) say_warnings((*recording)->warnings());  // they may give the reason
  return range;
}

std::string report_text(const LldbReport& report, const std::string& path) {
  const std::string traces = report.cpus != 0 ? counted(report.cpus, "cpu") : counted(report.threads, "thread");
  std::string text = fmt::format(
      "{}: {:.3f} MB of trace of {}, {} with code, {}\n"
      "  lldb -o 'trace load {}/trace.json'\n",
      path, megabytes(report.trace_bytes), traces, counted(report.files, "file"), counted(report.instructions, "instruction"), path);
  if (report.is_kernel) text += "  LLDB shows the kernel as one process, with a thread for each cpu\n";
  if (report.left_out_instructions != 0)
    text += fmt::format("  {} instructions of the idle task and of unknown threads belong to no process and are not shown by LLDB\n",
                        report.left_out_instructions);
  return text;
}

int run_lldb(const BundleWords& words, Interval time) {
  if (words.dry_run) return report_error({ErrorCode::contradictory_options, "--dry-run lists a bundle of ptdecode, not one of LLDB", 0});
  if (words.input.is_raw())
    return report_error(
        {ErrorCode::not_recorded, "LLDB's bundle needs the traced process, and a raw capture (--pt, --winipt) does not name it", 0});
  const Result<OpenRequest> asked = open_options(words.input);
  if (!asked) return report_error(asked.error());
  const Result<LldbReport> report = write_lldb_bundle(*asked, {words.output, time});
  if (!report) return report_error(report.error());
  say_warnings(report->warnings);
  if (!words.input.quiet) standard_output().write(report_text(*report, shown(words.output)));
  return kExitOk;
}

int run_bundle(BundleWords words) {
  if (!words.recording.empty()) words.input.path = words.recording;
  BundleOptions bundle;
  bundle.output_path = words.output;
  bundle.dry_run = words.dry_run;
  if (words.output.empty() && !words.dry_run)
    return report_error(
        {ErrorCode::contradictory_options, "name the bundle to write with -o FILE, or list its contents with --dry-run", 0});
  if (!words.time.empty()) {
    const Result<Interval> range = time_to_keep(words);
    if (!range) return report_error(range.error());
    bundle.time = *range;
  }
  if (words.format == "lldb") return run_lldb(words, bundle.time);
  const Result<OpenRequest> asked = open_options(words.input);
  if (!asked) return report_error(asked.error());
  Result<RawOptions> raw = RawOptions{};
  if (words.input.is_raw()) {
    raw = raw_options(words.input);
    if (!raw) return report_error(raw.error());
    bundle.raw = &*raw;
  }
  OpenRequest options = *asked;
  options.use_time = options.anchors = true;
  options.freeze = false;
  options.slack_ns = 0;
  options.drop_nth_poke = 0;
  const bool other = !asked->use_time || asked->freeze || asked->slack_ns != 0 || asked->drop_nth_poke != 0 || !asked->anchors;
  const std::span also(&*asked, other ? 1 : 0);
  const Result<BundleReport> report = write_requested_bundle(options, bundle, also);
  if (!report) return report_error(report.error());
  say_warnings(report->warnings);
  if (report->aux_total_bytes == 0) {
    const Result<std::unique_ptr<Recording>> opened = open_recording(words.input.repeated());  // a pipe cannot be read again
    if (opened) note_absent_trace(words.input, **opened);
  }
  if (!report->events_trouble.empty())
    say_on_error("ptdecode: warning: the bundle contains no samples of other events: " + report->events_trouble + "\n");
  if (words.dry_run) standard_output().write(parts_text(*report));
  say_on_error(missing_code_text(*report));
  if (!words.dry_run && !words.input.quiet) standard_output().write(report_text(*report, shown(words.output)));
  return kExitOk;
}

}  // namespace

Command add_bundle(CLI::App& app) {
  auto words = std::make_shared<BundleWords>();
  CLI::App& command = *app.add_subcommand("bundle", "Put a recording and the code that its decode needs into one file");
  command.add_option("recording", words->recording, "what to bundle, as with -i");
  add_input_options(command, words->input);
  command.add_option("-o,--output", words->output, "the file to write; of LLDB, the folder")->type_name("FILE");
  command.add_option("--format", words->format, "ptdecode, or lldb: a folder whose trace.json LLDB's 'trace load' reads")
      ->check(CLI::IsMember({"ptdecode", "lldb"}));
  command.add_flag("--dry-run", words->dry_run,
                   "write nothing; list each file that the bundle would contain, how many bytes of it, and "
                   "why");
  command.add_option("--time", words->time, "only the part from A to B: A,B in seconds; also A,+5ms and 10%-20%");
  command.footer(
      "A bundle opens with -i like any recording, and the decoded flow is the same on a machine without the programs. Limitation: it has "
      "no source lines, except announced ones, so coverage, profile and -F srcline need the original recording.\n"
      "It contains only the code that decoding reads: to decode it with --freeze, --no-time or --slack, give these options here too.\n"
      "From files outside the recording it takes only code that ran, and only if the file is proven to be the mapped one: by its build "
      "id, by its inode (programs and libraries only), or because you name it (--symfs, --map). --dry-run lists these files. A message "
      "names files whose code ran and that the bundle lacks.\n"
      "Examples:\n"
      "  ptdecode bundle perf.data -o small.ptb                  all of it\n"
      "  ptdecode bundle perf.data -o bug.ptb --time 17.9,18.1   a fifth of a second\n"
      "  ptdecode bundle perf.data -o folder --format lldb       for LLDB: trace load folder/trace.json\n"
      "  ptdecode script -i bug.ptb --insn-trace=disasm");
  return [words] { return run_bundle(*words); };
}

}  // namespace ptd::cli
