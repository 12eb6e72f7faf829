// `ptdecode check`: what disagrees with what in a recording. A bounded part of the flow is decoded.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/cmd/commands.h"
#include "cli/cmd/info.h"
#include "cli/options/exit_status.h"
#include "cli/options/format_option.h"
#include "cli/options/options.h"
#include "cli/report/check_json.h"
#include "cli/report/finding_text.h"
#include "cli/report/flow_check.h"
#include "cli/report/no_trace.h"
#include "cli/report/unverified.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"

namespace ptd::cli {

namespace {

struct CheckWords {
  InputOptions input;
  std::string format = "text";
};

/// How much of the trace was decoded; empty if all.
std::string part_text(const FlowCheck& flow) {
  if (flow.decoded_bytes >= flow.all_bytes) return {};
  return fmt::format(
      "the flow was checked in the first {} of {} bytes of trace, of each stream in proportion; 'ptdecode stat' decodes everything",
      flow.decoded_bytes, flow.all_bytes);
}

/// How much of the flow may be wrong, for people; empty: nothing.
std::string uncertain_text(const FlowCheck& flow) {
  if (flow.uncertain == 0) return {};
  return fmt::format(
      "{} of {} instructions are uncertain (ambiguous or suspect): 'ptdecode stat' counts them, 'ptdecode script "
      "--insn-trace' marks them\n",
      flow.uncertain, flow.instructions);
}

void print_text(const Recording& recording, const FlowCheck& flow, const std::string& unverified) {
  std::map<std::string_view, size_t> by_kind;
  Output& output = standard_output();
  const TextRecords records = text_records(recording);
  for (const Finding& finding : flow.findings) {
    ++by_kind[name(finding.kind, records)];
    output.write(finding_text(finding, records) + "\n");
  }
  for (const FlowContradiction& contradiction : flow.contradictions) {
    ++by_kind["flow_contradicts"];
    output.write(contradiction_text(contradiction) + "\n");
  }
  for (const WrongTimes& times : flow.wrong_times) {
    ++by_kind["times_contradict"];
    output.write(wrong_times_text(times) + "\n");
  }
  for (const TraceDamage& damage : flow.damage) {
    ++by_kind["trace_damaged"];
    output.write(damage_text(damage, stream_name(recording.streams()[damage.stream])) + "\n");
  }
  for (const MissingLine& line : flow.missing) {
    if (!has_code(recording)) break;  // said below
    ++by_kind["code_missing"];
    output.write(missing_code_text(line) + "\n");
  }
  if (flow.is_empty() && has_code(recording)) {
    ++by_kind["nothing_decoded"];
    output.write(fmt::format("nothing_decoded: no instruction follows from {} bytes of trace; 'ptdecode packets' lists the packets\n",
                             flow.all_bytes));
  }
  output.write(uncertain_text(flow));
  if (!unverified.empty()) output.write("not verified: " + unverified + "\n");
  if (const std::string part = part_text(flow); !part.empty()) output.write(part + "\n");
  if (by_kind.empty() && !has_code(recording)) {
    output.write(
        "nothing was compared: the recording contains no code and the files that it names were not found; 'ptdecode stat' lists what is\n"
        "missing, 'ptdecode check --help' the options that supply it\n");
    return;
  }
  if (by_kind.empty() && !has_trace(recording)) {
    output.write("no findings in the records and files; there is no trace to compare them with\n");
    return;
  }
  if (by_kind.empty()) {
    output.write(recording.warnings().empty() ? "no findings: the records, the code bytes and the files agree\n"
                                              : "no findings in what could be read (see the warnings on standard error)\n");
    return;
  }
  output.write("\n");
  for (const auto& [kind, count] : by_kind) output.write(fmt::format("{:>8} {}\n", count, kind));
}

int run_check(const CheckWords& words) {
  Result<std::unique_ptr<Recording>> opened = open_recording(words.input);
  if (!opened) return report_error(opened.error());
  const Recording& recording = **opened;
  if (!has_trace(recording)) note_absent_trace(words.input, recording);
  Progress progress("decoding", !words.input.quiet);
  FlowCheck flow = check_flow(recording, kCheckedFlowBytes, progress);
  progress.finish();
  const Result<Survey> read = words.input.is_raw() ? Result<Survey>(Survey()) : survey_input(words.input.repeated());
  const Survey files = read.ok() ? *read : Survey();
  for (FlowContradiction& each : flow.contradictions) each.file = unverified_file(files, each.path, each.build_id);
  if (words.format == "json") {
    standard_output().write(check_json(recording, flow).dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    print_text(recording, flow, unverified_text(files));
  }
  const TextRecords records = text_records(recording);
  const bool agrees =
      std::none_of(flow.findings.begin(), flow.findings.end(), [&](const Finding& finding) { return disagrees(finding, records); });
  return agrees && flow.agrees() && has_code(recording) ? kExitOk : kExitFinding;
}

}  // namespace

Command add_check(CLI::App& app) {
  auto words = std::make_shared<CheckWords>();
  CLI::App& command =
      *app.add_subcommand("check",
                          "Report contradictions in the recording: lost text pokes, wrong or missing files, lost records (exit "
                          "status 3 if any)");
  add_input_options(command, words->input);
  add_format_option(command, words->format, "text, or json: one object, for programs");
  command.footer(
      "Examples:\n"
      "  ptdecode check && ptdecode script        decode only a consistent recording\n"
      "  ptdecode check --json --kcore-after now  compare with a later copy of the kernel's text");
  return [words] { return run_check(*words); };
}

}  // namespace ptd::cli
