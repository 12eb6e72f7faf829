// `ptdecode stat`: how much was traced, how sure the flow is, and what was lost.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "analysis/flow_clock.h"
#include "cli/calls/call_input.h"
#include "cli/calls/loss_report.h"
#include "cli/cmd/commands.h"
#include "cli/list/stream_stat.h"
#include "cli/options/exit_status.h"
#include "cli/options/format_option.h"
#include "cli/options/options.h"
#include "cli/options/progress.h"
#include "cli/report/finding_text.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "cli/text/output.h"

namespace ptd::cli {

namespace {

constexpr size_t kListedLosses = 5;  // sentences on lost records

struct Words {
  InputOptions input;
  std::string cpus;
  std::string format = "text";
  bool packets_only = false;
  unsigned threads = 0;
};

void count_stream(const Recording& recording, uint32_t stream, bool packets_only, unsigned threads, StreamStat& stat, LossTimes& losses,
                  Progress& progress) {
  std::vector<std::byte> scratch;
  AuxSegment piece;
  for (uint64_t at = 0; !interrupted() && recording.next_segment(stream, at, piece, scratch);) {
    ++stat.segments;
    if (const arm::TraceConfig* config = recording.arm_config(stream)) {
      stat.add_arm_packets(*config, piece);
    } else {
      stat.add_packets(piece);
    }
    if (packets_only) progress.add(piece.bytes.size());
  }
  if (packets_only) return;
  uint64_t offset = 0;
  const auto sink = [&](const Batch& batch, const FlowDecoder&, const AuxSegment& segment) {
    stat.add(batch);
    losses.take(batch);
    if (segment.stream_offset_bytes > offset) progress.add(segment.stream_offset_bytes - offset);
    offset = std::max(offset, segment.stream_offset_bytes);
    return !interrupted();
  };
  const Status status = recording.decode_parallel(stream, 0, Recording::kStreamEnd, threads, sink);
  losses.finish(recording.streams()[stream].time.last);
  if (!status) report_error(status.error());
}

/// Streams side by side, as many as there are threads; threads that are left over share the streams' segments.
std::vector<StreamStat> count_all(const Recording& recording, const std::vector<uint32_t>& streams, const Words& words, LossSum& sum,
                                  Progress& progress) {
  unsigned threads = words.threads;
  std::mutex mutex;
  std::vector<StreamStat> stats(streams.size());
  std::atomic<size_t> next{0};
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  const size_t count = std::min<size_t>(streams.size(), threads);
  const unsigned each = count == 0 ? 1 : std::max(1U, threads / static_cast<unsigned>(count));
  const ThreadSchedule schedule(recording.contexts());
  const auto work = [&] {
    for (size_t i = next++; i < streams.size(); i = next++) {
      const StreamInfo& info = stats[i].info = recording.streams()[streams[i]];
      LossTimes losses(recording.contexts(), info.cpu, info.tid, sum.span, flow_clock(recording, streams[i], schedule));
      count_stream(recording, streams[i], words.packets_only, each, stats[i], losses, progress);
      const std::lock_guard lock(mutex);
      sum.add(losses);
    }
  };
  std::vector<std::thread> workers;
  for (size_t i = 1; i < count; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  return stats;
}

std::map<std::string_view, size_t> findings_by_kind(const Recording& recording) {
  std::map<std::string_view, size_t> kinds;
  for (const Finding& finding : recording.findings()) ++kinds[name(finding.kind, text_records(recording))];
  return kinds;
}

/// What was lost while recording or by damage of the files, one sentence each. The streams' gaps show it only where trace follows.
std::vector<std::string> losses_of(const Recording& recording) {
  std::vector<std::string> losses;
  for (const Finding& finding : recording.findings()) {
    if (finding.kind == FindingKind::records_lost) losses.push_back(finding.what);
  }
  return losses;
}

void print_json(const Recording& recording, const std::vector<StreamStat>& stats, const GapTally& gaps, const LossSum& losses,
                uint64_t total_bytes) {
  nlohmann::json json = {{"schema", "ptdecode-stat-1"}, {"recording", recording.description()}, {"streams", nlohmann::json::array()}};
  for (const StreamStat& stat : stats) json["streams"].push_back(stat_json(stat));
  json["findings"] = nlohmann::json::object();
  for (const auto& [kind, count] : findings_by_kind(recording)) json["findings"][std::string(kind)] = count;
  json["records_lost"] = losses_of(recording);
  json["missing_code"] = missing_json(rank_missing(gaps, recording, total_bytes));
  json["loss_times"] = loss_json(losses, recording);
  const LostRecords& lost = recording.lost();
  json["lost"] = {{"records", lost.records},
                  {"count", lost.count},
                  {"aux_truncated", lost.aux_truncated},
                  {"aux_partial", lost.aux_partial},
                  {"aux_collision", lost.aux_collision}};
  standard_output().write(json.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
}

void print_text(const Recording& recording, const std::vector<StreamStat>& stats, const GapTally& all_gaps, const LossSum& losses) {
  Output& output = standard_output();
  const std::string description = recording.description();
  if (!description.empty()) output.write(shown(description) + "\n");
  uint64_t instructions = 0, uncertain = 0, gaps = 0;
  for (const StreamStat& stat : stats) {
    output.write(stat_text(stat));
    instructions += stat.instructions;
    uncertain += stat.uncertain_instructions;
    gaps += stat.gaps.total();
  }
  output.write(
      fmt::format("all streams: {} instructions, {} of them uncertain (ambiguous or suspect), {} gaps\n", instructions, uncertain, gaps));
  const LostRecords& lost = recording.lost();
  if (lost.records + lost.aux_truncated + lost.aux_partial + lost.aux_collision != 0) {
    output.write(
        fmt::format("lost while recording: {} sideband records in {} places; trace truncated {} times, partial {}, collisions {}\n",
                    lost.count, lost.records, lost.aux_truncated, lost.aux_partial, lost.aux_collision));
  }
  const std::vector<std::string> sentences = losses_of(recording);
  for (size_t i = 0; i < sentences.size() && i < kListedLosses; ++i) output.write("records lost: " + shown(sentences[i]) + "\n");
  if (sentences.size() > kListedLosses)
    output.write(fmt::format("records lost: {}; --json lists all\n", counted(sentences.size() - kListedLosses, "more time")));
  output.write(loss_text(losses, all_gaps, recording));
  const auto findings = findings_by_kind(recording);
  output.write(fmt::format("findings: {}\n", findings.empty() ? "none" : "('ptdecode check' lists them)"));
  for (const auto& [kind, count] : findings) output.write(fmt::format("  {:<24} {:>8}\n", kind, count));
}

int run(const Words& words) {
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
  uint64_t total_bytes = 0;
  for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
    if (!cpus.empty() && std::find(cpus.begin(), cpus.end(), recording.streams()[stream].cpu) == cpus.end()) continue;
    streams.push_back(stream);
    total_bytes += recording.streams()[stream].size_bytes;
  }
  if (streams.empty() && !cpus.empty()) return report_error({ErrorCode::no_such_stream, "-C: no trace stream of these cpus", 0});
  Progress progress("decoding", !words.input.quiet);
  progress.set_total(total_bytes);
  LossSum losses;
  losses.span = dated_span(recording);
  stop_on_interrupt();
  const std::vector<StreamStat> stats = count_all(recording, streams, words, losses, progress);
  progress.finish();
  GapTally gaps;
  for (const StreamStat& stat : stats) gaps.merge(stat.gaps);
  const bool cut = interrupted();
  if (cut) {
    go_on_after_interrupt();
    if (!words.input.quiet) say_on_error(interrupt_text(progress.share(), gaps));
  }
  if (words.format == "json") {
    print_json(recording, stats, gaps, losses, total_bytes);
  } else {
    print_text(recording, stats, gaps, losses);
    standard_output().flush();
    if (!words.input.quiet) say_on_error(gap_summary(gaps, recording, total_bytes));
  }
  return cut ? kExitInterrupted : strict_status(words.input.strict, gaps, recording);
}

}  // namespace

Command add_stat(CLI::App& app) {
  auto words = std::make_shared<Words>();
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
  return [words] { return run(*words); };
}

}  // namespace ptd::cli
