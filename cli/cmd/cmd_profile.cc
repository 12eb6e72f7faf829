// `ptdecode profile`: executed code as profiles for optimising compilers and linkers.
#include <fmt/format.h>

#include <algorithm>

#include "cli/cache/symbol_cache.h"
#include "cli/calls/call_input.h"
#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/whole_file.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "ptdecode/bundle.h"

namespace ptd::cli {

namespace {

struct Words {
  CallWords calls;
  std::string output, format = "bolt", dso;
};

// [BOLT] "DataAggregator.h", parsePreAggregatedLBRSamples: B branch from, to, times, mispredicted; F straight code from its first to its
// last instruction; f the same where no jump of the function itself led there. Addresses from the file's own base, hex.
std::string bolt_text(const FileCounts& file) {
  std::string text;
  for (const CodeBranch& branch : file.branches) text += fmt::format("B {:x} {:x} {} 0\n", branch.from, branch.to, branch.count);
  for (const CodeRun& run : file.runs) {
    if (run.by_jump != 0) text += fmt::format("F {:x} {:x} {}\n", run.first, run.last, run.by_jump);
    if (run.count > run.by_jump) text += fmt::format("f {:x} {:x} {}\n", run.first, run.last, run.count - run.by_jump);
  }
  return text;
}

// [AutoFDO] "sample_reader.cc", TextSampleReaderWriter: ranges, addresses, branches, each list with its length; offsets in the file, hex.
std::string autofdo_text(const FileCounts& file) {
  const auto offset = [&file](uint64_t address) { return address - file.offset_to_address; };
  std::string text = fmt::format("{}\n", file.runs.size());
  for (const CodeRun& run : file.runs) text += fmt::format("{:x}-{:x}:{}\n", offset(run.first), offset(run.last), run.count);
  text += fmt::format("0\n{}\n", file.branches.size());
  for (const CodeBranch& branch : file.branches)
    text += fmt::format("{:x}->{:x}:{}\n", offset(branch.from), offset(branch.to), branch.count);
  return text;
}

/// Whether a file is the dynamic linker: it runs most of the code of a short program, and nobody optimizes it by a profile.
bool is_dynamic_linker(const std::string& path) {
  const std::string_view name = short_path(path);
  return name.starts_with("ld-linux") || name.starts_with("ld-musl-") || name.starts_with("ld64.so.") || name.starts_with("ld.so.");
}

/// Returns the file that a profile is for if none is named: the one that ran most, but the dynamic linker only if nothing else ran.
const FileCounts* usual_file(const CodeCounts& counts) {
  const FileCounts* linker = nullptr;
  for (const FileCounts& file : counts.files) {
    if (file.relocatable) continue;
    if (!is_dynamic_linker(file.path)) return &file;
    if (linker == nullptr) linker = &file;
  }
  return linker;
}

/// Returns the selected file; null after printing an error.
const FileCounts* pick(const Words& words, const CodeCounts& counts) {
  if (const FileCounts* usual = words.dso.empty() ? usual_file(counts) : nullptr; usual != nullptr) return usual;
  std::string known;
  for (const FileCounts& file : counts.files) {
    const bool named = file.path == words.dso || short_path(file.path) == words.dso;
    if (named && file.relocatable) {
      report_error({ErrorCode::not_recorded,
                    fmt::format("--dso: '{}' is a kernel module; a profile needs the link addresses of a program or "
                                "library", words.dso), 0});
      return nullptr;
    }
    if (named) return &file;
    known += (known.empty() ? "" : ", ") + file.path;
  }
  if (known.empty() && looks_like_bundle(words.calls.input.path)) {
    report_error(no_source_lines("profile"));
    return nullptr;
  }
  const std::string none = known.empty() ? "no code of a file ran"
                                         : "only kernel modules ran; a profile needs the link addresses of a program or library: " + known;
  report_error({ErrorCode::not_recorded,
                words.dso.empty() ? "profile: " + none
                                  : fmt::format("--dso: '{}' did not run; ran: {}", words.dso, known.empty() ? "nothing" : known),
                0});
  return nullptr;
}

std::string next_step(const Words& words, const FileCounts& file) {
  if (words.format == "bolt") return fmt::format("perf2bolt --pa -p {} -o {}.fdata {}", words.output, words.output, file.path);
  return fmt::format("create_llvm_prof --binary={} --profile={} --profiler=text --out={}.prof", file.path, words.output, words.output);
}

int run(const Words& words) {
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(words.calls);
  if (!opened) return report_error(opened.error());
  CallInput& input = **opened;
  if (const Status fit = check_output(words.output); !fit) return report_error(fit.error());  // before the work
  CodeCounts counts;
  const int status = input.count(words.calls, counts);
  if (status != kExitOk && status != kExitInterrupted) return status;
  const FileCounts* file = pick(words, counts);
  if (file == nullptr) return kExitUsage;
  const int written = write_result(words.output, words.format == "bolt" ? bolt_text(*file) : autofdo_text(*file));
  if (written != kExitOk) return written;
  if (!words.calls.input.quiet) {
    uint64_t all = 0;
    for (const FileCounts& each : counts.files) all += each.ran_bytes();
    say_on_error(fmt::format("ptdecode: {}: {:.1f} % of the code that ran, {} branches, {} straight-line ranges\n", shown(file->path),
                             all == 0 ? 0.0 : 100 * static_cast<double>(file->ran_bytes()) / static_cast<double>(all),
                             file->branches.size(), file->runs.size()));
    if (!words.output.empty()) say_on_error("ptdecode: next: " + shown(next_step(words, *file)) + "\n");
  }
  (void)input.say_summary(words.calls, true);
  if (status != kExitOk) return status;
  return strict_status(words.calls.input.strict, input.gaps(), input.recording());
}

}  // namespace

Command add_profile(CLI::App& app) {
  auto words = std::make_shared<Words>();
  CLI::App& command =
      *app.add_subcommand("profile", "Count each branch and each straight-line range of code: a profile for LLVM BOLT or AutoFDO");
  add_call_options(command, words->calls);
  command.add_option("-o,--output", words->output, "the file to write");
  command
      .add_option("--format", words->format,
                  "bolt: perf2bolt's pre-aggregated profile (--pa); autofdo: text for create_gcov and create_llvm_prof")
      ->check(CLI::IsMember({"bolt", "autofdo"}));
  command.add_option("--dso", words->dso, "the program or library (default: the one that ran the most code; the dynamic linker only if nothing else ran)");
  command.footer(
      "Exact, not sampled: every branch is counted. A trace does not contain mispredictions; they are written as 0.\n"
      "Examples:\n"
      "  ptdecode profile -o db.pa && perf2bolt --pa -p db.pa -o db.fdata /usr/bin/db\n"
      "  ptdecode profile --format autofdo -o db.txt && create_llvm_prof --profiler=text --binary=/usr/bin/db --profile=db.txt "
      "--out=db.prof");
  return [words] { return run(*words); };
}

}  // namespace ptd::cli
