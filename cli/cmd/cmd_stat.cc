// `ptdecode stat`: how much was traced, how sure the flow is, and what was lost.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/calls/call_input.h"
#include "cli/calls/stat_count.h"
#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/format_option.h"
#include "cli/options/options.h"
#include "cli/options/progress.h"
#include "cli/report/finding_text.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

namespace {

constexpr size_t kListedLosses = 5;  // sentences on lost records

struct StatWords {
  InputOptions input;
  std::string cpus;
  std::string format = "text";
  bool packets_only = false;
  unsigned threads = 0;
};

void print_text(const Recording& recording, const StatCounts& counts) {
  Output& output = standard_output();
  const std::string description = recording.description();
  if (!description.empty()) output.write(shown(description) + "\n");
  uint64_t instructions = 0, uncertain = 0, gaps = 0;
  for (const StreamStat& stat : counts.streams) {
    output.write(stat_text(stat));
    instructions += stat.instructions;
    uncertain += stat.uncertain_instructions;
    gaps += stat.gaps.total();
  }
  output.write(counts.is_decoded ? fmt::format("all streams: {} instructions, {} of them uncertain (ambiguous or suspect), {} gaps\n",
                                               instructions, uncertain, gaps)
                                 : "all streams: not decoded (--packets-only): instructions and gaps are not known\n");
  const LostRecords& lost = recording.lost();
  if (lost.lost_records + lost.aux_truncated + lost.aux_partial + lost.aux_collision != 0) {
    output.write(
        fmt::format("lost while recording: {} sideband records in {} places; trace truncated {} times, partial {}, collisions {}\n",
                    lost.records, lost.lost_records, lost.aux_truncated, lost.aux_partial, lost.aux_collision));
  }
  const std::vector<std::string> sentences = losses_of(recording);
  for (size_t i = 0; i < sentences.size() && i < kListedLosses; ++i) output.write("records lost: " + shown(sentences[i]) + "\n");
  if (sentences.size() > kListedLosses)
    output.write(fmt::format("records lost: {}; --json lists all\n", counted(sentences.size() - kListedLosses, "more time")));
  output.write(loss_text(counts.losses, counts.gaps, recording));
  const auto findings = findings_by_kind(recording);
  output.write(fmt::format("findings: {}\n", findings.empty() ? "none of its records and files ('ptdecode check' compares packets too)"
                                                              : "('ptdecode check' lists them)"));
  for (const auto& [kind, count] : findings) output.write(fmt::format("  {:<24} {:>8}\n", kind, count));
}

int run_stat(const StatWords& words) {
  if (words.packets_only && words.input.strict)
    return report_error({ErrorCode::contradictory_options, "stat: --strict needs the flow, which --packets-only does not decode", 0});
  std::vector<int32_t> cpus;
  if (!words.cpus.empty()) {
    Result<std::vector<int32_t>> list = parse_number_list("-C", words.cpus);
    if (!list) return report_error(list.error());
    cpus = std::move(*list);
  }
  Result<std::unique_ptr<Recording>> opened = open_traced(words.input);
  if (!opened) return report_error(opened.error());
  const Recording& recording = **opened;
  std::vector<uint32_t> streams;
  for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
    if (!cpus.empty() && std::find(cpus.begin(), cpus.end(), recording.streams()[stream].cpu) == cpus.end()) continue;
    streams.push_back(stream);
  }
  if (streams.empty() && !cpus.empty()) return report_error({ErrorCode::no_such_stream, "-C: no trace stream of these cpus", 0});
  Progress progress("decoding", !words.input.quiet);
  stop_on_interrupt();
  const StatCounts counts = count_streams(recording, {std::move(streams), words.packets_only, words.threads, {}}, progress);
  progress.finish();
  const GapTally& gaps = counts.gaps;
  const bool cut = interrupted();
  if (cut) {
    go_on_after_interrupt();
    say_on_error(interrupt_text(progress.share(), gaps));
  }
  if (words.format == "json") {
    standard_output().write(stat_report_json(recording, counts).dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    print_text(recording, counts);
    standard_output().flush();
    if (!words.input.quiet) say_on_error(gap_summary(gaps, recording, counts.total_bytes));
  }
  return cut ? kExitInterrupted : strict_status(words.input.strict, gaps, recording);
}

}  // namespace

Command add_stat(CLI::App& app) {
  auto words = std::make_shared<StatWords>();
  CLI::App& command = *app.add_subcommand("stat", "Report how much was traced, how certain the flow is, what was lost and why");
  add_input_options(command, words->input);
  command.add_option("-C,--cpu", words->cpus, "these cpus only: 0,2-3");
  command.add_flag("--packets-only", words->packets_only, "only count packets; do not decode the flow");
  add_thread_option(command, words->threads);
  add_format_option(command, words->format, "text, or json: one object, for programs");
  command.footer(
      "Examples:\n"
      "  ptdecode stat                     decodes all of ./perf.data\n"
      "  ptdecode stat --json -i rec/ | jq '.streams[].gaps'");
  return [words] { return run_stat(*words); };
}

}  // namespace ptd::cli
