// `ptdecode profile`: executed code as profiles for optimising compilers and linkers.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <system_error>
#include <vector>

#include "analysis/names/name_match.h"
#include "analysis/paths/context_counter.h"
#include "cli/cache/source_cache.h"
#include "cli/cache/symbol_cache.h"
#include "cli/calls/call_input.h"
#include "cli/calls/pprof_profile.h"
#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/whole_file.h"
#include "cli/report/missing_report.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/gzip.h"
#include "cli/text/protobuf.h"
#include "cli/text/shell_word.h"
#include "cli/text/size_words.h"
#include "cli/text/terminal.h"
#include "ptdecode/bundle.h"

namespace ptd::cli {

namespace {

struct ProfileWords {
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

/// Returns the place of an address of `file` for the reader of a profile.
using PlaceOf = std::function<std::optional<ProfilePlace>(uint64_t address)>;

// [AutoFDO] "sample_reader.cc", TextSampleReaderWriter: ranges, addresses, branches, each list with its length; offsets in the file, hex.
std::string autofdo_text(const FileCounts& file, const PlaceOf& place_of) {
  std::string runs, branches;
  size_t run_count = 0, branch_count = 0;
  for (const CodeRun& run : file.runs) {
    const auto first = place_of(run.first), last = place_of(run.last);
    if (!first || !last) continue;
    runs += fmt::format("{:x}-{:x}:{}\n", first->offset_bytes, last->offset_bytes, run.count);
    ++run_count;
  }
  for (const CodeBranch& branch : file.branches) {
    const auto from = place_of(branch.from), to = place_of(branch.to);
    if (!from || !to) continue;
    branches += fmt::format("{:x}->{:x}:{}\n", from->offset_bytes, to->offset_bytes, branch.count);
    ++branch_count;
  }
  return fmt::format("{}\n{}0\n{}\n{}", run_count, runs, branch_count, branches);
}

// [Propeller] "branch_frequencies.proto", BranchFrequenciesProto: taken_counts = 1 {source = 1, dest = 2, count = 3}, not_taken_counts = 2
// {address = 1, count = 2}. The address of a branch is that of its first byte, in the file's own addresses. Branches to and from other code
// count too, because the reader compares what enters and leaves a block. Their other end has kInvalidBinaryAddress
// ("binary_address_branch.h").
std::string propeller_text(const FileCounts& file, const PlaceOf& place_of) {
  constexpr uint64_t kElsewhere = ~uint64_t{0};
  std::string text;
  const auto address_of = [&place_of](uint64_t address) {
    const auto place = place_of(address);
    return place ? place->address : kElsewhere;
  };
  const auto put_taken = [&text](uint64_t from, uint64_t to, uint64_t count) {
    if (from == kElsewhere && to == kElsewhere) return;
    std::string taken;
    put(taken, 1, from);
    put(taken, 2, to);
    put(taken, 3, count);
    put(text, 1, taken);
  };
  for (const CodeBranch& branch : file.branches) put_taken(address_of(branch.from), address_of(branch.to), branch.count);
  for (const CodeCount& exit : file.exits) put_taken(address_of(exit.address), kElsewhere, exit.count);
  for (const CodeCount& entry : file.entries) put_taken(kElsewhere, address_of(entry.address), entry.count);
  for (const CodeCount& each : file.not_taken) {
    const uint64_t address = address_of(each.address);
    if (address == kElsewhere) continue;
    std::string not_taken;
    put(not_taken, 1, address);
    put(not_taken, 2, each.count);
    put(text, 2, not_taken);
  }
  return text;
}

// BOLT reads linked files only: llvm-bolt fails on a module, which has no segments (github.com/facebookarchive/BOLT, issue 280).
bool includes(const ProfileWords& words, const FileCounts& file) { return !file.relocatable || words.format != "bolt"; }

std::string refusal(std::string_view module) {
  return fmt::format("'{}' is a kernel module, which BOLT cannot read because it is not linked; use another --format", shown(module));
}

/// Whether a file is the dynamic linker: it runs most of the code of a short program, and nobody optimizes it by a profile.
bool is_dynamic_linker(const std::string& path) {
  const std::string_view name = short_path(path);
  return name.starts_with("ld-linux") || name.starts_with("ld-musl-") || name.starts_with("ld64.so.") || name.starts_with("ld.so.");
}

/// Returns the file that a profile is for if none is named: the one that ran most, but the dynamic linker only if nothing else ran.
const FileCounts* usual_file(const ProfileWords& words, const CodeCounts& counts) {
  const FileCounts* linker = nullptr;
  for (const FileCounts& file : counts.files) {
    if (!includes(words, file)) continue;
    if (!is_dynamic_linker(file.path)) return &file;
    if (linker == nullptr) linker = &file;
  }
  return linker;
}

/// Returns the error for a name of several files. Those of one path, of which one replaced the other, have different build ids.
Error several_files(const std::string& name, const std::vector<const FileCounts*>& files) {
  std::string list;
  for (const FileCounts* file : files)
    list += fmt::format("{}{} (build id {})", list.empty() ? "" : ", ", file->path, file->build_id.empty() ? "unknown" : file->build_id);
  return {ErrorCode::invalid_argument,
          fmt::format("--dso: '{}' is the name of {} files that ran: {}; give more of the path, or a folder (-o DIR/), "
                      "which gets a profile of each",
                      name, files.size(), list),
          0};
}

/// Returns the selected file; null after printing an error.
const FileCounts* pick(const ProfileWords& words, const CodeCounts& counts, const Recording& recording) {
  if (const FileCounts* usual = words.dso.empty() ? usual_file(words, counts) : nullptr; usual != nullptr) return usual;
  std::string known;
  std::vector<const FileCounts*> found;
  for (const FileCounts& file : counts.files) {
    const bool named = names_file(words.dso, file.path);
    if (named && !includes(words, file)) {
      report_error({ErrorCode::not_recorded, "--dso: " + refusal(words.dso), 0});
      return nullptr;
    }
    if (named) found.push_back(&file);
    known += (known.empty() ? "" : ", ") + file.path;
  }
  if (found.size() == 1) return found.front();
  if (!found.empty()) {
    report_error(several_files(words.dso, found));
    return nullptr;
  }
  if (known.empty() && looks_like_bundle(words.calls.input.path)) {
    report_error(no_source_lines("profile"));
    return nullptr;
  }
  if (const std::string missing = words.dso.empty() ? "" : missing_file_text(recording, words.dso); !missing.empty()) {
    report_error({ErrorCode::not_recorded, "--dso: " + missing, 0});
    return nullptr;
  }
  const std::string none =
      known.empty() ? "no code of a file ran"
                    : "only kernel modules ran, which BOLT cannot read because they are not linked; use another --format: " + known;
  report_error(
      {ErrorCode::not_recorded,
       words.dso.empty()
           ? "profile: " + none
           : fmt::format("--dso: no code of a file '{}' ran; files that ran: {} (the kernel's is a vmlinux or module that was found)",
                         words.dso, known.empty() ? "none" : known),
       0});
  return nullptr;
}

std::string next_step(const ProfileWords& words, const FileCounts& file, const std::string& output) {
  const std::string program = shell_word(file.path), profile = shell_word(output);
  if (words.format == "bolt") return fmt::format("perf2bolt --pa -p {} -o {} {}", profile, shell_word(output + ".fdata"), program);
  if (words.format == "propeller") {
    return fmt::format(
        "generate_propeller_profiles --binary={} --profile={} --profile_type=FREQUENCIES_PROTO --cc_profile={} --ld_profile={}", program,
        profile, shell_word(output + ".cc.txt"), shell_word(output + ".ld.txt"));
  }
  return fmt::format("create_llvm_prof --binary={} --profile={} --profiler=text --out={}", program, profile, shell_word(output + ".prof"));
}

Error no_output() { return {ErrorCode::contradictory_options, "profile: -o FILE is missing", 0}; }

Error binary_to_terminal(const ProfileWords& words) {
  return {ErrorCode::bad_output,
          fmt::format("profile: a {} profile is binary, and the output is a terminal: name a file with -o", words.format), 0};
}

/// Writes a profile. Returns the exit status, after printing an error.
int write_profile(const ProfileWords& words, const std::string& path, const std::string& text) {
  if (words.format != "propeller") return write_result(path, text);
  Result<std::unique_ptr<WholeFile>> file = WholeFile::open(path);
  if (!file) return report_error(file.error());
  if (is_terminal((*file)->fd())) return report_error(binary_to_terminal(words));
  (*file)->write(text);
  const Status status = (*file)->finish();
  return status.ok() ? kExitOk : report_error(status.error());
}

constexpr size_t kLongestBuildId = 128;  ///< digits in a file name

/// Returns the file name of a profile: the file's own name and build id, which together are those of one file.
std::string profile_name(const FileCounts& file, const std::string& format, const Recording& recording) {
  std::string name;
  for (const char c : short_path(file.path)) {
    if (c != '[' && c != ']') name += c == '/' || static_cast<unsigned char>(c) < ' ' || c == 0x7f ? '_' : c;
  }
  std::string build_id = file.build_id.empty() ? recording.symbolizer().build_id_of(file.path, file.build_id) : file.build_id;
  if (build_id.empty() || build_id.size() > kLongestBuildId) build_id = "no-build-id";
  return fmt::format("{}.{}.{}", name, build_id, format == "bolt" ? "pa" : format == "autofdo" ? "txt" : format);
}

PlaceOf place_of(const FileCounts& file, const Recording& recording) {
  return [&](uint64_t address) { return recording.symbolizer().profile_place(file.path, file.build_id, address); };
}

std::string text_of(const ProfileWords& words, const FileCounts& file, const Recording& recording) {
  if (words.format == "bolt") return bolt_text(file);
  return words.format == "autofdo" ? autofdo_text(file, place_of(file, recording)) : propeller_text(file, place_of(file, recording));
}

bool is_folder(const std::string& output) {
  std::error_code ignored;
  return output.ends_with('/') || std::filesystem::is_directory(output, ignored);
}

std::string share_text(uint64_t part, uint64_t all) {
  return fmt::format("{:.1f} %", all == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(all));
}

void say_profile(const ProfileWords& words, const FileCounts& file, const CodeCounts& counts, const Recording& recording,
                 const std::string& output) {
  uint64_t all = 0;
  for (const FileCounts& each : counts.files) all += each.ran_bytes();
  const char* const other =
      words.dso.empty() && !is_folder(words.output) && counts.files.size() > 1 ? " (--dso NAME selects another file)" : "";
  const std::string rest = words.format == "propeller"
                               ? counted(file.not_taken.size(), "conditional branch", "conditional branches") + " that fell through"
                               : fmt::format("{} straight-line ranges", file.runs.size());
  say_on_error(fmt::format("ptdecode: profile of {}{}: {} of the code of files that ran, {} branches, {}\n", shown(file.path), other,
                           share_text(file.ran_bytes(), all), file.branches.size(), rest));
  if (file.relocatable) {
    uint64_t left_out = 0;
    const PlaceOf placed = place_of(file, recording);
    for (const CodeRun& run : file.runs) left_out += placed(run.first) ? 0 : run.count * (run.end - run.first);
    const std::string share = share_text(left_out, file.ran_bytes());
    if (left_out != 0)
      say_on_error(fmt::format("ptdecode: {}: {} of its code that ran is left out, because it is not in the section .text\n",
                               shown(file.path), share));
    if (file.build_id.empty()) say_on_error(unproven_text(file.path));
  }
  if (!output.empty()) say_on_error("ptdecode: next: " + next_step(words, file, output) + "\n");
}

/// Writes a profile for each file, or each that --dso selects, into the folder `words.output`.
int write_profiles(const ProfileWords& words, const CodeCounts& counts, const Recording& recording, int status) {
  std::map<std::string, size_t> names;
  size_t written = 0;
  for (const FileCounts& file : counts.files) {
    if (!words.dso.empty() && !names_file(words.dso, file.path)) continue;
    if (!includes(words, file)) {
      say_on_error("ptdecode: left out: " + refusal(file.path) + "\n");
      continue;
    }
    std::string name = profile_name(file, words.format, recording);
    if (const size_t same = names[name]++; same != 0) name.insert(name.rfind('.'), fmt::format(".{}", same + 1));  // of another folder
    const std::string path = (std::filesystem::path(words.output) / name).string();
    ++written;
    if (keeps_earlier_file(path, status)) continue;
    if (const int done = write_profile(words, path, text_of(words, file, recording)); done != kExitOk) return done;
    if (!words.calls.input.quiet) say_profile(words, file, counts, recording, path);
  }
  if (written == 0 && !words.dso.empty()) return (void)pick(words, counts, recording), kExitUsage;  // it says why
  if (written == 0) return report_error({ErrorCode::not_recorded, "profile: no code of a program or library ran", 0});
  return kExitOk;
}

/// The folder for profiles. What create() made of it is removed at the end if no profile came into it.
class ProfileFolder {
 public:
  ProfileFolder() = default;
  ProfileFolder(const ProfileFolder&) = delete;
  ProfileFolder& operator=(const ProfileFolder&) = delete;
  ~ProfileFolder() {
    std::error_code ignored;  // of a folder that is not empty
    for (const std::filesystem::path& path : made_) std::filesystem::remove(path, ignored);
  }
  /// Creates the folder, before the work. Errors: write_failed.
  Status create(const std::string& path) {
    std::error_code failed;
    const std::filesystem::path folder = std::filesystem::path(path.ends_with('/') ? path.substr(0, path.find_last_not_of('/') + 1) : path);
    for (std::filesystem::path at = folder; !at.empty() && !std::filesystem::exists(at, failed); at = at.parent_path()) made_.push_back(at);
    std::filesystem::create_directories(path, failed);
    if (!failed && ::access(path.c_str(), W_OK | X_OK) != 0) failed = {errno, std::generic_category()};
    return failed ? Status(Error{ErrorCode::write_failed, "profile: cannot write into " + path + ": " + failed.message(), 0}) : Status();
  }

 private:
  std::vector<std::filesystem::path> made_;  ///< the innermost first
};

int write_one(const ProfileWords& words, const CodeCounts& counts, const Recording& recording) {
  const FileCounts* file = pick(words, counts, recording);
  if (file == nullptr) return kExitUsage;
  const int written = write_profile(words, words.output, text_of(words, *file, recording));
  if (written == kExitOk && !words.calls.input.quiet) say_profile(words, *file, counts, recording, words.output);
  return written;
}

/// Counts code by address.
int run_by_address(const ProfileWords& words, CallInput& input) {
  const bool all = is_folder(words.output);
  if (words.format == "propeller" && words.output.empty()) return report_error(no_output());
  ProfileFolder folder;
  if (const Status fit = all ? folder.create(words.output) : check_output(words.output); !fit) return report_error(fit.error());
  CodeCounts counts;
  const int status = input.count(words.calls, counts);
  if (status != kExitOk && status != kExitInterrupted) return status;
  if (!all && keeps_earlier_file(words.output, status)) return status;
  const int written = all ? write_profiles(words, counts, input.recording(), status) : write_one(words, counts, input.recording());
  return written != kExitOk ? written : status;
}

// [LLVM] "SampleProfReader.h", text format: "[context]:total:head", then a line for each line of the function with its count and what it
// calls.
std::string csspgo_text(const ContextProfiles& profiles) {
  const auto line_text = [](const ContextProfile::Line& line) {
    return line.second == 0 ? fmt::format(" {}", line.first) : fmt::format(" {}.{}", line.first, line.second);
  };
  std::string text;
  for (const auto& [context, profile] : profiles) {
    uint64_t total = 0;
    for (const auto& [line, count] : profile.lines) total += count;
    text += fmt::format("[{}]:{}:{}\n", context, total, profile.entries);
    std::map<ContextProfile::Line, std::string> rows;
    for (const auto& [line, count] : profile.lines) rows[line] = fmt::format("{}: {}", line_text(line), count);
    for (const auto& [line, callees] : profile.calls) {
      std::string& row = rows[line];
      if (row.empty()) row = line_text(line) + ": 0";
      for (const auto& [callee, count] : callees) row += fmt::format(" {}:{}", callee, count);
    }
    for (const auto& [line, row] : rows) text += row + "\n";
  }
  return text;
}

/// Counts lines by the calls that led to them.
int run_csspgo(const ProfileWords& words, CallInput& input) {
  if (!words.dso.empty())
    return report_error({ErrorCode::contradictory_options, "profile: --format csspgo includes all files: remove --dso", 0});
  if (const Status fit = check_output(words.output); !fit) return report_error(fit.error());  // before the work
  ContextProfiles profiles;
  const int status = input.count(words.calls, [&](const CodeCountOptions& options) {
    Result<ContextProfiles> counted = count_contexts(input.recording(), options);
    if (!counted) return Status(counted.error());
    profiles = std::move(*counted);
    return Status{};
  });
  if (status != kExitOk && status != kExitInterrupted) return status;
  if (profiles.empty() && looks_like_bundle(words.calls.input.path)) return report_error(no_source_lines("profile"));
  if (profiles.empty())
    return report_error({ErrorCode::not_recorded, "profile: no code with source lines ran: a program needs debug information (-g)", 0});
  if (keeps_earlier_file(words.output, status)) return status;
  if (const int written = write_result(words.output, csspgo_text(profiles)); written != kExitOk) return written;
  if (!words.calls.input.quiet) {
    say_on_error(fmt::format("ptdecode: {}\n", counted(profiles.size(), "context")));
    if (!words.output.empty()) say_on_error(fmt::format("ptdecode: next: clang -fprofile-sample-use={}\n", shell_word(words.output)));
  }
  return status;
}

/// Counts calls and their instructions by stack.
int run_pprof(const ProfileWords& words, CallInput& input) {
  if (words.output.empty() || !words.dso.empty())
    return report_error(words.output.empty()
                            ? no_output()
                            : Error{ErrorCode::contradictory_options, "profile: --format pprof includes all files: remove --dso", 0});
  Result<std::unique_ptr<WholeFile>> file = WholeFile::open(words.output);
  if (!file) return report_error(file.error());
  if (is_terminal((*file)->fd())) return report_error(binary_to_terminal(words));
  PprofProfile profile(input);
  const int status = input.walk(words.calls, [&](std::span<const CallStep> steps, const CallTree& tree) {
    profile.take(steps, tree);
    return true;
  });
  if (status != kExitOk && status != kExitInterrupted) return status;
  if (keeps_earlier_file(words.output, status)) return status;
  profile.finish();
  std::string text = profile.write();
  if (words.output.ends_with(".gz")) {
    std::string packed;
    Gzip gzip;
    gzip.add(text, packed);
    gzip.finish(packed);
    text = std::move(packed);
  }
  (*file)->write(text);
  if (const Status written = (*file)->finish(); !written) return report_error(written.error());
  if (!words.calls.input.quiet)
    say_on_error(fmt::format("ptdecode: {}: {}; next: go tool pprof -http=: {}\n", shown(words.output), counted(profile.samples(), "stack"),
                             shell_word(words.output)));
  if (profile.left_out() != 0) say_on_error("ptdecode: " + left_out_text(profile.left_out()) + "\n");
  return status;
}

int run_profile(const ProfileWords& words) {
  if (!words.calls.inlined && words.format != "pprof")
    return report_error(
        {ErrorCode::contradictory_options, fmt::format("profile: --no-inline has no effect on --format {}: remove it", words.format), 0});
  if (words.calls.fibres && words.format != "pprof")
    return report_error(
        {ErrorCode::contradictory_options, fmt::format("profile: --fibres has no effect on --format {}: remove it", words.format), 0});
  if (const bool one_file = words.format == "csspgo" || words.format == "pprof"; one_file && is_folder(words.output))
    return report_error({ErrorCode::contradictory_options,
                         fmt::format("profile: --format {} includes all files in one profile, and -o {} is a folder: name a file",
                                     words.format, shown(words.output)),
                         0});
  Result<std::unique_ptr<CallInput>> opened = CallInput::open(words.calls);
  if (!opened) return report_error(opened.error());
  CallInput& input = **opened;
  const int status = words.format == "pprof"    ? run_pprof(words, input)
                     : words.format == "csspgo" ? run_csspgo(words, input)
                                                : run_by_address(words, input);
  if (status != kExitOk && status != kExitInterrupted) return status;
  (void)input.say_summary(words.calls, true);
  if (status != kExitOk) return status;
  return strict_status(words.calls.input.strict, input.gaps(), input.recording());
}

}  // namespace

Command add_profile(CLI::App& app) {
  auto words = std::make_shared<ProfileWords>();
  CLI::App& command = *app.add_subcommand(
      "profile", "Count each branch and each straight-line range of code, or each stack: for LLVM, BOLT, AutoFDO, Propeller and pprof");
  add_call_options(command, words->calls);
  add_inline_option(command, words->calls);
  add_fibre_option(command, words->calls.fibres);
  command.add_option(
      "-o,--output", words->output,
      "the file to write; with bolt, autofdo and propeller also a folder (DIR/), which gets a profile of each file that ran, or of those "
      "that --dso selects");
  command
      .add_option(
          "--format", words->format,
          "bolt: perf2bolt's pre-aggregated profile (--pa); autofdo: text for create_gcov and create_llvm_prof; propeller: branch counts "
          "for generate_propeller_profiles; csspgo: LLVM's context-sensitive text; pprof: stacks. The last two include all files")
      ->check(CLI::IsMember({"bolt", "autofdo", "propeller", "csspgo", "pprof"}));
  command.add_option(
      "--dso", words->dso,
      "the program, library, vmlinux or kernel module, given by its name, its path or the end of its path: b/prog (default: the one that "
      "ran the most code; the dynamic linker only if nothing else ran)");
  command.footer(
      "Exact, not sampled: every branch is counted. A trace does not contain mispredictions; they are written as 0.\n"
      "In a folder, a profile is named by file and build id: db.BUILDID.pa. The kernel has one if its vmlinux is found, a module if its "
      ".ko file with debug information is found. Of modules, autofdo and propeller include the section .text, as their readers do "
      "(create_llvm_prof from June 2026 on). BOLT cannot read modules.\n"
      "propeller: branches taken and not taken (BranchFrequenciesProto), for a program built with clang -fbasic-block-address-map.\n"
      "csspgo: how often each line ran, by the chain of calls that led to it, for all files with debug information. A tail call is in "
      "the chain, a stub (NAME@plt) is not. A function that code without debug information calls, and a signal's handler, begin a chain. "
      "What catches an exception or comes back by longjmp is in its own chain again. Functions have their mangled names.\n"
      "pprof: calls, self instructions and self time of each stack, for all files, the kernel and its modules, with their build ids. "
      "Functions have no source lines. A file whose name ends in .gz is compressed.\n"
      "Limitations of readers: create_llvm_prof 0.19 reads no DWARF 5 and then writes an empty profile without a message: build with "
      "-gdwarf-4. perf2bolt counts ranges of code in PLT stubs as mismatching traces, because BOLT does not treat stubs as functions.\n"
      "Examples:\n"
      "  ptdecode profile --dso db -o db.pa && perf2bolt --pa -p db.pa -o db.fdata /usr/bin/db\n"
      "  ptdecode profile --format autofdo --dso db -o db.txt && create_llvm_prof --profiler=text --binary=/usr/bin/db --profile=db.txt "
      "--out=db.prof\n"
      "  ptdecode profile --format propeller --dso db -o db.propeller && generate_propeller_profiles --binary=/usr/bin/db "
      "--profile=db.propeller --profile_type=FREQUENCIES_PROTO --cc_profile=db.cc.txt --ld_profile=db.ld.txt\n"
      "  ptdecode profile -o profiles/                                of each file that ran\n"
      "  ptdecode profile --format csspgo -o run.prof && clang++ -O2 -fprofile-sample-use=run.prof ...\n"
      "  ptdecode profile --format pprof -o run.pb.gz && go tool pprof -http=: run.pb.gz");
  return [words] { return run_profile(*words); };
}

}  // namespace ptd::cli
