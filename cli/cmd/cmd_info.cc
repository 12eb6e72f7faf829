// `ptdecode info`: what a recording is, at a glance: read from its records, nothing is decoded.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <map>
#include <thread>

#include "cli/cmd/commands.h"
#include "cli/cmd/info.h"
#include "cli/options/exit_status.h"
#include "cli/options/format_option.h"
#include "cli/options/options.h"
#include "cli/report/finding_text.h"
#include "cli/report/unverified.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"
#include "ptdecode/survey.h"
#include "recording/survey_json.h"

namespace ptd::cli {

namespace {

constexpr double kBytesPerSecond = 30e6;  ///< trace that one core decodes in a second, typically (docs/evidence/speed.md)
constexpr size_t kListedThreads = 12, kListedImages = 8, kListedStreams = 16;

std::string bytes_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string command_text(const Survey& survey) {
  std::string text;
  for (const std::string& word : survey.command) text += (text.empty() ? "" : " ") + word;
  return text;
}

bool has_bounds(Interval time) { return time.first != kTimeMin && time.last != kTimeMax; }

std::string seconds_text(TimeNs time) { return fmt::format("{}.{:09}", time.value / 1'000'000'000, time.value % 1'000'000'000); }

std::string span_text(Interval time) {
  return fmt::format("{}..{} ({:.3f} s)", seconds_text(time.first), seconds_text(time.last),
                     static_cast<double>(time.last.value - time.first.value) / 1e9);
}

std::string date_text(const Survey& survey) {
  const int64_t ns = static_cast<int64_t>(survey.time.first.value) + survey.wall_offset_ns;
  const std::time_t seconds = ns / 1'000'000'000;
  std::tm broken{};
  if (::localtime_r(&seconds, &broken) == nullptr) return {};
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %z", &broken)};
}

std::string decode_time_text(uint64_t trace_bytes) {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  const double seconds = static_cast<double>(trace_bytes) / kBytesPerSecond;
  if (seconds < 1) return "less than a second";
  return fmt::format("about {:.0f} s on one core, {:.0f} s on the {} of this machine", seconds, std::max(1.0, seconds / cores), cores);
}

void add(std::string& text, std::string_view label, const std::string& value) {
  if (!value.empty()) text += fmt::format("{:<11} {}\n", label, shown(value));
}

std::string what_text(const Survey& survey) {
  std::string text;
  const bool is_command = survey.form == "bundle" || survey.form.starts_with("perf");
  add(text, is_command ? "made by" : "description", command_text(survey));
  add(text, "host", survey.hostname);
  add(text, "kernel", survey.kernel);
  add(text, "cpu", survey.cpu.empty() ? survey.cpuid : survey.cpu);
  add(text, "perf", survey.perf_version);
  const bool has_trace = !survey.trace.empty() || !survey.streams.empty();
  std::string traced = survey.traces_user     ? survey.traces_kernel ? "user and kernel" : "user only"
                       : survey.traces_kernel ? "kernel only"
                                              : "";
  const auto more = [&traced](const char* separator, const std::string& what) { traced += (traced.empty() ? "" : separator) + what; };
  if (!survey.filter.empty()) more(", ", "filter " + survey.filter);
  if (survey.snapshot) more(", ", "snapshots");
  if (!survey.windows.empty()) more(", ", "AUX samples");
  if (survey.trace.starts_with("CoreSight")) more("; ", survey.trace);
  if (!survey.timing.empty()) more("; ", "time from " + survey.timing);
  if (has_trace) add(text, "traced", traced);
  if (has_bounds(survey.time)) add(text, "time", span_text(survey.time));
  if (survey.has_wall_clock && has_bounds(survey.time)) {
    add(text, "clock", survey.clock + "; recorded from " + date_text(survey));
  } else if (!survey.clock.empty()) {
    add(text, "clock",
        survey.clock + "; the time of day is not recorded" + (survey.clock == "monotonic" ? "" : " (perf record -k monotonic records it)"));
  }
  return text;
}

std::string streams_text(const Survey& survey) {
  std::string text;
  if (survey.streams.empty()) {
    add(text, "trace", "none; 'perf record -e intel_pt//u -- PROGRAM' or 'ptdecode record --emulate -- PROGRAM' records one");
    return text;
  }
  add(text, "trace",
      fmt::format("{} in {} stream{}; ptdecode stat takes {}", bytes_text(survey.trace_bytes), survey.streams.size(),
                  survey.streams.size() == 1 ? "" : "s", decode_time_text(survey.trace_bytes)));
  for (size_t i = 0; i < survey.streams.size() && i < kListedStreams; ++i) {
    const SurveyStream& stream = survey.streams[i];
    text += fmt::format("{:<11}   {} {:<6} {:>10}", "",
                        stream.cpu >= 0   ? "cpu"
                        : stream.tid >= 0 ? "thread"
                                          : "source",
                        stream.cpu >= 0   ? std::to_string(stream.cpu)
                        : stream.tid >= 0 ? std::to_string(stream.tid)
                                          : std::string("-"),
                        bytes_text(stream.size_bytes));
    if (!stream.source.empty()) text += "  " + shown(stream.source);
    text += has_bounds(stream.time) ? "  " + span_text(stream.time) + "\n" : "\n";
  }
  if (survey.streams.size() > kListedStreams) text += fmt::format("{:<11}   and {} more\n", "", survey.streams.size() - kListedStreams);
  return text;
}

std::string threads_text(const Survey& survey) {
  std::map<std::string, std::vector<const ThreadInfo*>> by_name;
  for (const ThreadInfo& thread : survey.threads) by_name[thread.comm.empty() ? "?" : thread.comm].push_back(&thread);
  std::vector<std::pair<std::string, std::vector<const ThreadInfo*>>> ranked(by_name.begin(), by_name.end());
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string text;
  add(text, "threads", fmt::format("{}, {}", survey.threads.size(), counted(ranked.size(), "name")));
  for (size_t i = 0; i < ranked.size() && i < kListedThreads; ++i) {
    text += fmt::format("{:<11}   {:<16} tid", "", shown(ranked[i].first));
    for (size_t k = 0; k < ranked[i].second.size() && k < 6; ++k) text += fmt::format(" {}", ranked[i].second[k]->tid);
    if (ranked[i].second.size() > 6) text += fmt::format(" and {} more", ranked[i].second.size() - 6);
    text += "\n";
  }
  if (ranked.size() > kListedThreads) text += fmt::format("{:<11}   and {}\n", "", counted(ranked.size() - kListedThreads, "more name"));
  return text;
}

std::string images_text(const Survey& survey) {
  const auto missing =
      static_cast<size_t>(std::count_if(survey.images.begin(), survey.images.end(), [](const SurveyImage& image) { return !image.found; }));
  std::string text;
  std::map<std::string, size_t> places;
  for (const SurveyImage& image : survey.images) {
    if (image.found && image.from != "path") ++places[image.from];
  }
  std::string from;
  for (const auto& [place, count] : places) from += fmt::format("{}{} by {}", from.empty() ? " (" : ", ", count, place);
  if (survey.images.empty() && survey.form == "bundle") {
    add(text, "code", "in the bundle");
    return text;
  }
  if (survey.form.starts_with("perf")) {
    add(text, "code",
        fmt::format("{} found{}{}, {} missing", counted(survey.images.size() - missing, "file"), from, from.empty() ? "" : ")", missing));
  } else {  // the files that are used are not listed
    add(text, "code", missing == 0 ? "no file is missing" : counted(missing, "file") + " missing");
  }
  for (size_t i = 0; i < missing && i < kListedImages; ++i) {
    const SurveyImage& image = survey.images[i];
    text += fmt::format("{:<11}   {} ({}{}{})\n", "", shown(image.path), shown(image.reason), image.build_id.empty() ? "" : "; build id ",
                        image.build_id);
  }
  if (missing > kListedImages) text += fmt::format("{:<11}   and {} more; --json lists all\n", "", missing - kListedImages);
  if (const std::string unverified = unverified_text(survey); !unverified.empty()) text += fmt::format("{:<11}   {}\n", "", unverified);
  if (survey.traces_kernel && survey.form.starts_with("perf"))
    add(text, "kernel code",
        survey.kernel_copy ? fmt::format("a copy (--kcore) and {} text pokes", survey.text_pokes.value_or(0))
                           : "none: kernel flow needs 'perf record --kcore'");
  return text;
}

std::string guests_text(const Survey& survey) {
  std::string text;
  for (const SurveyGuest& guest : survey.guests) {
    const auto count = std::ranges::count_if(
        survey.threads, [&](const ThreadInfo& thread) { return thread.comm.starts_with(fmt::format("VM:{} ", guest.pid)); });
    add(text, text.empty() ? "guests" : "",
        fmt::format("{}: {}{}; kernel code: {}", guest.pid > 0 ? fmt::format("VM:{}", guest.pid) : "VM",
                    counted(static_cast<size_t>(count), "thread"), guest.text_pokes ? ", " + counted(*guest.text_pokes, "text poke") : "",
                    guest.kernel_copy ? "a copy" : "none; 'ptdecode stat' says what to supply"));
  }
  return text;
}

std::string rest_text(const Survey& survey) {
  std::string text;
  const LostRecords& lost = survey.lost;
  if (lost.records + lost.aux_truncated + lost.aux_partial + lost.aux_collision != 0)
    add(text, "lost",
        fmt::format("{} in {}; trace cut {}, partial {}, collisions {}", counted(lost.records, "record"),
                    counted(lost.lost_records, "place"), counted(lost.aux_truncated, "time"), lost.aux_partial, lost.aux_collision));
  for (const auto& [name, windows] : survey.windows) {
    const std::string without = windows.without_trace == 0 ? "" : fmt::format(", {} of them without trace", windows.without_trace);
    add(text, "AUX samples", fmt::format("{} of {}, {}{}", windows.samples, name, bytes_text(windows.trace_bytes), without));
  }
  for (const auto& [name, count] : survey.other_events) add(text, "ignored", fmt::format("{} of {}", counted(count, "sample"), name));
  for (const std::string& warning : survey.warnings) add(text, "warning", warning);
  return text;
}

}  // namespace

Result<Survey> survey_input(const InputOptions& input) {
  Result<OpenRequest> options = open_options(input);
  if (!options) return options.error();
  options->debuginfod = false;  // never wait for a server
  if (!input.is_raw()) return survey(*options);
  const Result<std::unique_ptr<Recording>> opened = open_recording(input);
  if (!opened) return opened.error();
  Survey result = survey_of(**opened);
  result.form = input.winipt_path.empty() ? "raw trace" : "Windows Intel PT dump";
  return result;
}

int show_info(const InputOptions& input, bool json) {
  const Result<Survey> facts = survey_input(input);
  if (!facts) return report_error(explain_absent(input, facts.error()));
  if (json) {
    standard_output().write(survey_json(*facts) + "\n");
    return kExitOk;
  }
  const std::string& path = input.source();
  standard_output().write(fmt::format("{:<11} {}: {}{}\n", "recording", shown(path), facts->form,
                                      facts->file_bytes == 0 ? "" : ", " + bytes_text(facts->file_bytes)));
  standard_output().write(what_text(*facts) + streams_text(*facts) + threads_text(*facts) + images_text(*facts) + guests_text(*facts) +
                          rest_text(*facts));
  return kExitOk;
}

Command add_info(CLI::App& app) {
  struct Words {
    InputOptions input;
    std::string format = "text";
  };
  auto words = std::make_shared<Words>();
  CLI::App& command =
      *app.add_subcommand("info", "Describe the recording without decoding it: command, host, threads, trace, time, missing files");
  add_input_options(command, words->input);
  add_format_option(command, words->format, "text, or json: one object, for programs");
  command.footer(
      "Examples:\n"
      "  ptdecode info                      describes ./perf.data, like 'ptdecode' alone; -i FILE names another\n"
      "  ptdecode info --json -i rec/ | jq '.threads[].comm'");
  return [words] { return show_info(words->input, words->format == "json"); };
}

}  // namespace ptd::cli
