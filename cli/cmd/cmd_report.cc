// `ptdecode report`: a recording as one HTML file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cli/calls/stat_count.h"
#include "cli/cmd/commands.h"
#include "cli/cmd/info.h"
#include "cli/html/call_facts.h"
#include "cli/html/density.h"
#include "cli/html/image_history.h"
#include "cli/html/page.h"
#include "cli/options/exit_status.h"
#include "cli/options/whole_file.h"
#include "cli/report/check_json.h"
#include "cli/report/finding_text.h"
#include "cli/report/no_trace.h"
#include "cli/report/unverified.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "ptdecode/likeliest_time.h"
#include "ptdecode/ptdecode.h"
#include "recording/survey_json.h"

namespace ptd::cli {

namespace {

struct ReportWords {
  CallWords calls;
  std::string output;
  std::string given_input;  ///< see given_input()
};

/// What was read and decoded, before it is cut to the size of a page.
struct Facts {
  nlohmann::json info, stat, check;
  std::vector<std::string> findings;  ///< for people, as `check` prints them
  std::vector<StreamDensity> density;
  Interval span;
};

/// Leaves the first `most` elements of a list, and returns a sentence if that cuts it.
void cut_list(nlohmann::json& list, size_t most, std::string_view what, std::string_view all, nlohmann::json& cuts) {
  if (!list.is_array() || list.size() <= most) return;
  cuts.push_back(fmt::format("{} of {} {} are shown; all: {}", most, list.size(), what, all));
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(most), list.end());
}

nlohmann::json gap_sentences() {
  nlohmann::json sentences = nlohmann::json::object();
  for (int i = 0; i < kGapReasons; ++i) sentences[name(static_cast<GapReason>(i))] = sentence(static_cast<GapReason>(i));
  return sentences;
}

std::vector<std::string> finding_texts(const Recording& recording, const FlowCheck& flow) {
  std::vector<std::string> texts;
  const TextRecords records = text_records(recording);
  for (const Finding& finding : flow.findings) texts.push_back(finding_text(finding, records));
  for (const FlowContradiction& each : flow.contradictions) texts.push_back(contradiction_text(each));
  for (const WrongTimes& each : flow.wrong_times) texts.push_back(wrong_times_text(each));
  for (const TraceDamage& each : flow.damage) texts.push_back(damage_text(each, stream_name(recording.streams()[each.stream])));
  return texts;
}

nlohmann::json page_json(const ReportWords& words, const Facts& facts, CallInput& input, CallFacts& calls, const PageLimits& limits) {
  nlohmann::json cuts = nlohmann::json::array(), info = facts.info, stat = facts.stat, check = facts.check, texts = facts.findings;
  cut_list(info["threads"], limits.threads, "threads", "ptdecode info --json", cuts);
  cut_list(info["images"], limits.images, "files", "ptdecode info --json", cuts);
  cut_list(info["streams"], limits.streams, "streams", "ptdecode info --json", cuts);
  cut_list(stat["streams"], limits.streams, "streams in the totals' table", "ptdecode stat --json", cuts);
  cut_list(stat["missing_code"], limits.findings, "entries of missing code", "ptdecode stat --json", cuts);
  cut_list(stat["records_lost"], limits.findings, "sentences on lost records", "ptdecode stat --json", cuts);
  cut_list(stat["loss_times"]["threads"], limits.threads, "threads with lost flow", "ptdecode stat --json", cuts);
  cut_list(check["findings"], limits.findings, "findings", "ptdecode check --json", cuts);
  cut_list(check["missing_code"], limits.findings, "entries of missing code", "ptdecode check --json", cuts);
  cut_list(check["missing_images"], limits.findings, "missing files", "ptdecode check --json", cuts);
  cut_list(texts, limits.findings, "findings", "ptdecode check", cuts);
  nlohmann::json functions = calls.functions_json(limits), flame = calls.flame_json(limits),
                 image = image_history_json(input.recording(), facts.span, limits);
  const auto note = [&cuts](const nlohmann::json& list, const nlohmann::json& all, std::string_view what, std::string_view command) {
    if (list.size() < all.get<uint64_t>())
      cuts.push_back(fmt::format("{} of {} {} are shown; all: {}", list.size(), all.get<uint64_t>(), what, command));
  };
  note(functions["rows"], functions["all"], "functions", "ptdecode functions --limit 0");
  note(flame["frames"], flame["all"], "frames of the flame graph", "ptdecode flame --format folded");
  note(image["regions"], image["all_regions"], "regions of addresses", "ptdecode image");
  note(image["changes"], image["all_changes"], "changes of code", "ptdecode image --diff A,B");
  for (std::string& doubt : input.doubts()) cuts.push_back(std::move(doubt));
  const std::string& path = words.calls.input.source();
  const bool dated = input.recording().has_time_conversion() && facts.span.first != kTimeMin && facts.span.last != kTimeMax;
  nlohmann::json json = {{"schema", "ptdecode-report-1"},
                         {"recording", path},
                         {"input", words.given_input},
                         {"version", ptd_version()},
                         {"span",
                          {{"dated", dated},
                           {"first", dated ? moment_text(facts.span.first) : ""},
                           {"last", dated ? moment_text(facts.span.last) : ""},
                           {"length_ns", dated ? facts.span.last.value - facts.span.first.value : 0}}},
                         {"info", std::move(info)},
                         {"stat", std::move(stat)},
                         {"check", std::move(check)},
                         {"findings", std::move(texts)},
                         {"functions", std::move(functions)},
                         {"flame", std::move(flame)},
                         {"image", std::move(image)},
                         {"density", density_json(input.recording(), facts.density, limits.rows)},
                         {"cuts", std::move(cuts)},
                         {"gap_reasons", gap_sentences()}};
  for (auto& [key, value] : json.items()) {
    const bool sentences = key == "findings" || key == "check" || key == "stat" || key == "info" || key == "cuts";
    make_shown(value, sentences ? 4 * limits.name_bytes : limits.name_bytes);
  }
  return json;
}

/// Halves what the page lists until it fits.
std::string fitting_page(const ReportWords& words, const Facts& facts, CallInput& input, CallFacts& calls) {
  const std::string& path = words.calls.input.source();
  PageLimits limits;
  std::string page = page_text(path.substr(0, 4096), page_json(words, facts, input, calls, limits));
  for (int halvings = 0; page.size() > kMostPageBytes && halvings < 8; ++halvings) {
    limits = limits.halved();
    page = page_text(path.substr(0, 4096), page_json(words, facts, input, calls, limits));
  }
  return page;
}

/// The times of all streams: where no record dates them, as in CoreSight snapshots, those of their packets.
Interval span_of(const Recording& recording, unsigned threads) {
  const Interval told = dated_span(recording);
  if (told.first != kTimeMin || !recording.has_time_conversion()) return told;
  Interval span{kTimeMax, kTimeMin};
  for (uint32_t stream = 0; stream < recording.streams().size() && !interrupted(); ++stream) {
    (void)recording.decode_parallel(stream, 0, Recording::kStreamEnd, threads,
                                    [&span](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
                                      for (const Mark& mark : batch.marks) {
                                        if (!is_dated(mark)) continue;
                                        span.first = std::min(span.first, likeliest(mark));
                                        span.last = std::max(span.last, likeliest(mark));
                                      }
                                      return !interrupted();
                                    });
  }
  return span.first < span.last ? span : Interval{};
}

Result<Facts> count(const ReportWords& words, const CallInput& input, GapTally& gaps) {
  const Recording& recording = input.recording();
  Facts facts;
  Result<Survey> survey = survey_input(words.calls.input.repeated());
  if (!survey && words.calls.input.path != "-") return survey.error();
  const Survey files = survey.ok() ? *survey : survey_of(recording);  // a pipe is read once
  facts.info = nlohmann::json::parse(survey_json(files));
  stop_on_interrupt();
  facts.span = span_of(recording, std::max(1U, words.calls.threads));
  facts.density.assign(recording.streams().size(), StreamDensity(facts.span));
  StatRequest request{{}, false, words.calls.threads, [&facts](uint32_t stream, const Batch& batch) { facts.density[stream].take(batch); }};
  for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) request.streams.push_back(stream);
  Progress counting("counting", !words.calls.input.quiet);
  const StatCounts counts = count_streams(recording, request, counting);
  counting.finish();
  if (interrupted()) return facts;  // nothing is written
  facts.stat = stat_report_json(recording, counts);
  gaps = counts.gaps;
  Progress checking("checking", !words.calls.input.quiet);
  FlowCheck flow = check_flow(recording, kCheckedFlowBytes, checking);
  checking.finish();
  if (interrupted()) return facts;
  for (FlowContradiction& each : flow.contradictions) each.file = unverified_file(files, each.path, each.build_id);
  facts.check = check_json(recording, flow);
  facts.findings = finding_texts(recording, flow);
  return facts;
}

int run_report(const ReportWords& words) {
  if (words.output.empty())
    return report_error({ErrorCode::contradictory_options,
                         "report: -o FILE.html is missing; equivalent of 'perf report': 'ptdecode functions', or 'ptdecode flame'", 0});
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(words.calls);
  if (!opened) return report_error(opened.error());
  CallInput& input = **opened;
  if (!has_trace(input.recording())) note_absent_trace(words.calls.input, input.recording());
  if (const Status fit = check_output(words.output); !fit) return report_error(fit.error());  // before the work
  GapTally gaps;
  const Result<Facts> facts = count(words, input, gaps);
  if (!facts) return report_error(facts.error());
  CallFacts calls(input);
  bool ended_early = interrupted();
  if (!ended_early && has_trace(input.recording())) {
    const int status = input.walk(words.calls, [&](std::span<const CallStep> steps, const CallTree& tree) {
      calls.take(steps, tree);
      return true;
    });
    if (status != kExitOk && status != kExitInterrupted) return status;
    ended_early = status == kExitInterrupted;
  }
  if (ended_early) {
    say_on_error(fmt::format("ptdecode: report: interrupted; {} was not written\n", shown(words.output)));
    return kExitInterrupted;
  }
  const std::string page = fitting_page(words, *facts, input, calls);
  if (const int written = write_result(words.output, page); written != kExitOk) return written;
  for (const std::string& doubt : input.doubts()) say_on_error("ptdecode: " + doubt + "\n");
  say_on_error(symbol_warnings(input.recording()));
  if (!words.calls.input.quiet)
    say_on_error(fmt::format("ptdecode: {}: {}; open it in a browser\n", shown(words.output), size_text(page.size())));
  return strict_status(words.calls.input.strict, gaps, input.recording());
}

}  // namespace

Command add_report(CLI::App& app) {
  auto words = std::make_shared<ReportWords>();
  words->calls.trace_optional = true;
  CLI::App& command =
      *app.add_subcommand("report", "Write one HTML file that explains the recording: totals, timeline, functions, code changes, findings");
  add_input_options(command, words->calls.input);
  add_inline_option(command, words->calls);
  add_fibre_option(command, words->calls.fibres);
  add_thread_option(command, words->calls.threads);
  command.add_option("-o,--output", words->output, "the file to write");
  command.footer(
      "The file needs no network and no other file, and has less than 5 MB. It names the lists that were cut. Its numbers are those of "
      "'info', 'stat', 'functions' and 'check'.\n"
      "Examples:\n"
      "  ptdecode report -o run.html              explains ./perf.data\n"
      "  ptdecode report -o run.html -i rec.ptb   a bundle, also on a machine without the programs");
  return [words, &command] {
    words->given_input = given_input(command, words->calls.input);
    return run_report(*words);
  };
}

}  // namespace ptd::cli
