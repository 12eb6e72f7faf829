// `ptdecode plan`: divides a recording into units that are decoded on their own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/fleet/fleet_commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "ptdecode/survey.h"
#include "recording/bundle/plan.h"

namespace ptd::cli {

namespace {

struct PlanWords {
  InputOptions input;
  std::string recording, output;
  uint32_t units = 0;
  uint64_t unit_mb = 0;
};

std::string report_text(const PlanReport& report, const std::string& path) {
  constexpr double kMega = 1e6;
  std::string text = fmt::format(
      "{}: {} bytes\n"
      "  trace    {:10.3f} MB, {} segments, {} units\n",
      path, report.file_bytes, static_cast<double>(report.trace_bytes) / kMega, report.segments, report.units);
  if (report.embedded_bytes != 0)
    text += fmt::format("  embedded {:10.3f} MB of it, which no file holds as they are decoded\n",
                        static_cast<double>(report.embedded_bytes) / kMega);
  for (const TraceFile& file : report.files) text += fmt::format("  needs    {} ({} bytes)\n", shown(file.path), file.size_bytes);
  return text;
}

int run_plan(PlanWords words) {
  if (!words.recording.empty()) words.input.path = words.recording;
  const Result<OpenRequest> asked = open_options(words.input);
  if (!asked) return report_error(asked.error());
  PlanOptions plan;
  plan.output_path = words.output;
  plan.units = words.units;
  plan.unit_bytes = words.unit_mb << 20;
  Result<RawOptions> raw = RawOptions{};
  if (words.input.is_raw()) {
    raw = raw_options(words.input);
    if (!raw) return report_error(raw.error());
    plan.raw = &*raw;
  }
  const Result<PlanReport> report = write_plan(*asked, plan);
  if (!report) return report_error(explain_absent(words.input, report.error()));
  for (const std::string& warning : report->warnings) say_on_error("ptdecode: warning: " + shown(warning) + "\n");
  if (!words.input.quiet) standard_output().write(report_text(*report, shown(words.output)));
  return kExitOk;
}

}  // namespace

Command add_plan(CLI::App& app) {
  auto words = std::make_shared<PlanWords>();
  CLI::App& command =
      *app.add_subcommand("plan", "Divide a recording into units that other machines decode, each from its part of the trace");
  command.add_option("recording", words->recording, "what to plan, as with -i");
  add_input_options(command, words->input);
  command.add_option("-o,--output", words->output, "the file to write")->type_name("FILE")->required();
  CLI::Option* units = command.add_option("--units", words->units, "about so many units in all")->check(CLI::Range(1, 1'000'000));
  command.add_option("--unit-size", words->unit_mb, "about so many MiB of trace in a unit (default 128)")
      ->type_name("MIB")
      ->check(CLI::Range(1, 65536))
      ->excludes(units);
  command.footer(
      "The plan contains the code of all mapped files, names, threads and the places of all sync points, and names the byte ranges of "
      "the trace. A unit is decoded from the plan and its ranges alone: without the programs, and without perf. FLEET.md explains the "
      "rest.\n"
      "A plan opens with -i like any recording while its trace files are in their place.\n"
      "Examples:\n"
      "  ptdecode plan perf.data -o run.plan\n"
      "  ptdecode unit run.plan                   list the units\n"
      "  ptdecode unit run.plan 0 -o results      decode the first one\n"
      "  ptdecode merge run.plan results -o all   when all are decoded");
  return [words] { return run_plan(*words); };
}

}  // namespace ptd::cli
