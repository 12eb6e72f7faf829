// `ptdecode verify`: is the decode right? Against checkpoints of a ground truth, or against a decode that had every record.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/options/progress.h"
#include "cli/report/flow_check.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"
#include "cli/verify/checkpoint_check.h"
#include "cli/verify/reference_compare.h"
#include "cli/verify/truth.h"
#include "cli/verify/truth_compare.h"
#include "recording/data/aux_windows.h"

namespace ptd::cli {

namespace {

struct VerifyWords {
  InputOptions input;
  std::vector<std::string> truths, names;
  std::string cpus;
  bool reference = false;
};

int run_truth(const VerifyWords& words) {
  struct Job {
    uint32_t stream = 0;
    std::vector<Checkpoint> truth;
    Result<CheckedStream> checked = Error{};
  };
  Result<std::unique_ptr<Recording>> opened = open_traced(words.input);
  if (!opened) return report_error(opened.error());
  const Recording& recording = **opened;
  std::vector<Job> jobs;
  for (const std::string& path : words.truths) {
    Result<std::vector<Checkpoint>> truth = read_truth(path);
    if (!truth) return report_error(truth.error());
    const Result<uint32_t> stream = stream_of_truth(recording, path);
    if (!stream) return report_error(stream.error());
    jobs.push_back({*stream, std::move(*truth)});
  }
  Progress progress("verifying", !words.input.quiet);
  uint64_t total = 0;
  for (const Job& job : jobs) total += recording.streams()[job.stream].size_bytes;
  progress.set_total(total);
  std::vector<std::thread> threads;
  for (Job& job : jobs) {
    threads.emplace_back(
        [&] { job.checked = check_stream(recording, job.stream, std::move(job.truth), [&](uint64_t bytes) { progress.add(bytes); }); });
  }
  for (std::thread& thread : threads) thread.join();
  progress.finish();
  bool equal = true;
  for (const Job& job : jobs) {
    if (!job.checked) return report_error(job.checked.error());
    standard_output().write(checked_text(recording.streams()[job.stream], *job.checked));
    equal &= job.checked->equal();
  }
  return equal ? kExitOk : kExitFinding;
}

bool is_sampled(const Recording& recording) { return !recording.streams().empty() && !aux_windows(recording, 0).empty(); }

// Complete ground truths, as `ptdecode record --emulate --truth` writes them.
int run_complete(const VerifyWords& words) {
  Result<std::unique_ptr<Recording>> opened = open_traced(words.input);
  if (!opened) return report_error(opened.error());
  const Recording& recording = **opened;
  const std::vector<StreamInfo>& streams = recording.streams();
  Progress progress("verifying", !words.input.quiet);
  uint64_t total = 0;
  for (const StreamInfo& stream : streams) total += stream.size_bytes;
  progress.set_total(total);
  bool equal = true;
  for (const std::string& path : words.truths) {
    const std::string name = path.substr(path.rfind('/') + 1);
    const int32_t tid = tid_of_path(name), cpu = tid < 0 ? cpu_of_path(name) : -1;
    uint32_t index = 0;
    while (index < streams.size() && (tid >= 0 || cpu >= 0) && (tid >= 0 ? streams[index].tid != tid : streams[index].cpu != cpu)) ++index;
    if (index == streams.size() && is_sampled(recording)) {
      standard_output().write(fmt::format("{}: no AUX sample holds trace of it; what it ran counts as lost\n", shown(name)));
      continue;
    }
    if (index == streams.size()) {
      return report_error(
          {ErrorCode::no_such_stream,
           path + ": the recording has no stream with this name; it may be of an earlier recording, as record --truth keeps what is in its "
                  "folder",
           0});
    }
    const Result<TruthCounts> counts =
        compare_with_truth(recording, index, path, words.names, [&](uint64_t bytes) { progress.add(bytes); });
    if (!counts) return report_error(counts.error());
    progress.finish();
    standard_output().write(truth_report(streams[index], *counts));
    if (tid < 0 && cpu < 0) {
      standard_output().write(fmt::format("  compared with stream {} ({}), because the name {} has neither 'tidN' nor 'cpuN'\n", index,
                                          stream_name(streams[index]), shown(name)));
    }
    equal &= counts->equal();
  }
  return equal ? kExitOk : kExitFinding;
}

int run_reference(const VerifyWords& words) {
  InputOptions complete = words.input.repeated();
  complete.drop_poke.clear();
  complete.slack.clear();
  complete.freeze = complete.no_time = complete.no_anchors = false;
  complete.quiet = true;
  Result<std::unique_ptr<Recording>> reference = open_recording(complete);
  if (!reference) return report_error(reference.error());
  Result<std::unique_ptr<Recording>> other = open_recording(words.input);
  if (!other) return report_error(other.error());
  const std::vector<StreamInfo>& streams = (*reference)->streams();
  Progress progress("comparing", !words.input.quiet);
  uint64_t total = 0, wrong = 0;
  for (const StreamInfo& stream : streams) total += stream.size_bytes;
  progress.set_total(total);
  std::vector<int32_t> cpus;
  if (!words.cpus.empty()) {
    Result<std::vector<int32_t>> list = parse_number_list("-C", words.cpus);
    if (!list) return report_error(list.error());
    cpus = std::move(*list);
  }
  for (uint32_t stream = 0; stream < streams.size(); ++stream) {
    if (!cpus.empty() && std::find(cpus.begin(), cpus.end(), streams[stream].cpu) == cpus.end()) continue;
    const Result<ComparedCounts> compared = compare_stream(**reference, **other, stream, [&](uint64_t bytes) { progress.add(bytes); });
    if (!compared) return report_error(compared.error());
    const ComparedCounts& c = *compared;
    wrong += c.silently_wrong + c.invented - c.invented_flagged;
    progress.finish();
    standard_output().write(
        fmt::format("{}: {} instructions: right {} ({:.4f} %), of them flagged {} ({:.4f} %); wrong but flagged {}; lost in gaps {}; "
                    "silently wrong {} ({:.6f} %); "
                    "extra {}, of them flagged {}; int3 {} of {}\n",
                    stream_name(streams[stream]), c.reference, c.right, percent(c.right, c.reference), c.right_flagged,
                    percent(c.right_flagged, c.reference), c.wrong_flagged, c.lost_in_gap, c.silently_wrong,
                    percent(c.silently_wrong, c.reference), c.invented, c.invented_flagged, c.int3_other, c.int3_reference));
    if (c.has_silent)
      standard_output().write(fmt::format("  first silent difference in the segment at offset {:#x}\n", c.first_silent_offset_bytes));
  }
  return wrong == 0 ? kExitOk : kExitFinding;
}

int run_verify(const VerifyWords& words) {
  if (words.reference == !words.truths.empty()) {
    return report_error({ErrorCode::contradictory_options, "verify: name truth files, or compare with a full decode with --reference", 0});
  }
  if (!words.reference && !words.cpus.empty()) return report_error({ErrorCode::contradictory_options, "verify: -C needs --reference", 0});
  const auto complete = std::count_if(words.truths.begin(), words.truths.end(), emulate::TruthFileReader::is_truth_file);
  if (complete != 0 && static_cast<size_t>(complete) != words.truths.size()) {
    return report_error({ErrorCode::contradictory_options, "verify: checkpoint files and complete ground truths cannot be combined", 0});
  }
  if (complete == 0 && !words.names.empty())
    return report_error({ErrorCode::contradictory_options, "verify: --count needs complete ground truths", 0});
  if (words.reference) return run_reference(words);
  return complete != 0 ? run_complete(words) : run_truth(words);
}

}  // namespace

Command add_verify(CLI::App& app) {
  auto words = std::make_shared<VerifyWords>();
  CLI::App& command = *app.add_subcommand("verify", "Compare a decode with a ground truth, or a restricted decode with a full one");
  add_input_options(command, words->input);
  command.add_option("truth", words->truths,
                     "complete ground truths (*.ptt) or checkpoint files; 'tidN' or 'cpuN' in the name identifies "
                     "the stream");
  command.add_flag("--reference", words->reference, "compare with a decode without --freeze, --no-time or --slack");
  command
      .add_option("--count", words->names,
                  "with complete ground truths: count separately what ran in matching kernel functions "
                  "(repeatable)")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command.add_option("-C,--cpu", words->cpus, "with --reference: these cpus only");
  command.footer(
      "Examples:\n"
      "  ptdecode verify -i recording truth.cpu0.txt truth.cpu1.txt    every checkpoint of both cpus\n"
      "  ptdecode verify -i recording --reference --freeze             what a decoder without text pokes gets wrong");
  return [words] { return run_verify(*words); };
}

}  // namespace ptd::cli
