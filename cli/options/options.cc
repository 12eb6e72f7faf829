// Options that every command has: see options.h.
#include "cli/options/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <tuple>

#include "cli/options/exit_status.h"
#include "cli/options/progress.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/shell_word.h"
#include "image/stash/stash.h"
#include "recording/image/image_files.h"

namespace ptd::cli {

namespace {

constexpr const char *kInputGroup = "Input", *kRawGroup = "Raw captures", *kGuestGroup = "Virtual machines";

void add_guest_options(CLI::App& command, InputOptions& input) {
  const std::string guests = kGuestGroup;
  command
      .add_option("--guestmount", input.guestmount,
                  "folder with the root file system of each guest at DIR/PID; PID is the process that runs it")
      ->check(CLI::ExistingDirectory)
      ->group(guests)
      ->type_name("DIR");
  command
      .add_option(
          "--guestkallsyms", input.guestkallsyms,
          "a copy of the guest's /proc/kallsyms; code is read from the copies of its /proc/kcore and /proc/modules in the same folder")
      ->check(CLI::ExistingFile)
      ->group(guests)
      ->type_name("FILE");
  command.add_option("--guestmodules", input.guestmodules, "a copy of the guest's /proc/modules")
      ->check(CLI::ExistingFile)
      ->group(guests)
      ->type_name("FILE");
  command
      .add_option("--guestvmlinux", input.guestvmlinux,
                  "the guest's vmlinux, if there is no copy of its /proc/kcore; its code is marked assumed")
      ->check(CLI::ExistingFile)
      ->group(guests)
      ->type_name("FILE");
}

void add_raw_options(CLI::App& command, InputOptions& input, CLI::Option* path) {
  const std::string raw = kRawGroup;
  CLI::Option* pt = command
                        .add_option("--pt", input.pt_path,
                                    "Intel PT bytes without a container, instead of -i; without times unless --clock-freq is given")
                        ->group(raw)
                        ->type_name("FILE")
                        ->excludes(path);
  command
      .add_option("--winipt", input.winipt_path,
                  "trace of a Windows process from ipt.sys, as 'ipttool --trace PID FILE' writes it, instead of -i")
      ->group(raw)
      ->type_name("FILE")
      ->excludes(path)
      ->excludes(pt);
  command
      .add_option(
          "--modules", input.modules_path,
          "modules of that process: CSV (BaseAddress,ModuleMemorySize,FileName), or the output of WinDbg's 'lm f'; the files are searched "
          "below --symfs and in the list's folder")
      ->group(raw)
      ->type_name("LIST");
  command.add_option("--pt-cpu", input.pt_cpu, "family/model/stepping of the traced cpu, for its errata: 6/94/3")
      ->group(raw)
      ->type_name("F/M/S");
  command
      .add_option(
          "--image", input.images,
          "code bytes, also of a CoreSight snapshot: FILE[,off=N,size=N]@ADDR, or an ELF file that names its addresses (repeatable)")
      ->allow_extra_args(false)
      ->group(raw)
      ->type_name("IMAGE");
  command.add_option("--pages", input.pages, "code pages and their addresses (little-endian u64): DUMP,ADDRS")
      ->group(raw)
      ->type_name("FILES");
  command.add_option("--tsc-ctc", input.tsc_ctc, "TSC ticks per crystal tick: N/D (CPUID.15H EBX/EAX); default of --winipt: from the file")
      ->group(raw)
      ->type_name("N/D");
  command
      .add_option("--clock-freq", input.clock_freq,
                  "frequency of the TSC (--pt, --winipt), or of the timestamps of a CoreSight snapshot or capture file: 2.4GHz")
      ->group(raw)
      ->type_name("HZ");
  command
      .add_option("--mtc-freq", input.mtc_period,
                  "IA32_RTIT_CTL.MTCFreq; default of --winipt: from the file, else measured from the packets")
      ->group(raw)
      ->check(CLI::Range(0, 15));
  command.add_option("--nom-freq", input.nominal_ratio, "nominal frequency ratio, for CBR")->group(raw)->check(CLI::Range(0, 255));
}

}  // namespace

std::string given_input(const CLI::App& command, const InputOptions& input) {
  std::string words = input.is_raw() ? "" : "-i " + shell_word(input.path);
  for (const CLI::Option* option : command.get_options()) {
    const std::string& group = option->get_group();
    if (option->empty() || option->check_name("-i") || !(group == kInputGroup || group == kRawGroup || group == kGuestGroup)) continue;
    const bool is_flag = option->get_expected_max() == 0;
    for (const std::string& value : option->results())
      words += (words.empty() ? "" : " ") + option->get_name() + (is_flag ? "" : " " + shell_word(value));
  }
  return words;
}

void add_input_options(CLI::App& command, InputOptions& input) {
  const std::string in = kInputGroup;
  CLI::Option* path = command.add_option("-i,--input", input.path,
                                         "perf.data file or directory, bundle, '-' for a pipe, LLDB's trace.json, a CoreSight snapshot's "
                                         "folder or capture file (default ./perf.data)");
  path->group(in);
  command
      .add_option("--symfs", input.symfs,
                  "look for recorded paths below this root first; PID=ROOT: for that process and its descendants (repeatable)")
      ->allow_extra_args(false)
      ->group(in)
      ->type_name("[PID=]ROOT");
  command.add_option("--map", input.maps, "map a file into a process at ADDR, overriding the recording: PID:FILE,off=N@ADDR (repeatable)")
      ->allow_extra_args(false)
      ->group(in)
      ->type_name("MAP");
  command.add_flag("--no-debuginfod", input.no_debuginfod, "do not ask the servers of DEBUGINFOD_URLS for missing files")->group(in);
  command
      .add_flag_callback(
          "--allow-outside", [&input] { input.symfs.emplace_back("/"); },
          "read every file that the recording names, even outside its folder (same as --symfs /); only for recordings that you trust")
      ->group(in);
  command
      .add_option("--kcore-after", input.kcore_after,
                  "a later copy of the kernel's text: directory with kcore, kallsyms, modules; or a vmcore, a dump of memory (repeatable)")
      ->check(CLI::ExistingPath)
      ->allow_extra_args(false)
      ->group(in)
      ->type_name("DIR|FILE");
  command.add_option("--debug-dir", input.debug_dirs, "where separate debug files are (default /usr/lib/debug)")
      ->allow_extra_args(false)
      ->group(in)
      ->type_name("DIR");
  command.add_option("--build-id-cache", input.build_id_cache, "perf's cache of files by build id (default ~/.debug)")
      ->group(in)
      ->type_name("DIR");
  command
      .add_option("--stash", input.stash, "folder with the code saved at recording time (default: see 'ptdecode stash --help'; off: none)")
      ->group(in)
      ->type_name("DIR");

  add_guest_options(command, input);
  add_raw_options(command, input, path);

  const std::string how = "Decoding";
  command.add_flag("--no-time", input.no_time, "ignore all times: only the packets choose between versions of code")->group(how);
  command.add_option("--slack", input.slack, "widen every time by this much on both sides: 50us (ns, us, ms, s)")
      ->group(how)
      ->type_name("TIME");
  command
      .add_flag("--freeze", input.freeze,
                "ignore text pokes: patched code keeps its first bytes. Code that is mapped, loaded or compiled (JIT) later is still used")
      ->group(how);
  command
      .add_flag("--strict", input.strict, "exit with 3 if flow was lost, or if records, files or times of packets contradict each other")
      ->group(how);
  command.add_flag("-q,--quiet", input.quiet, "no progress and no summary on standard error; warnings remain")->group(how);
  command.add_option("--drop-poke", input.drop_poke, "pretend that every N-th TEXT_POKE record was lost")->group("")->type_name("N[,SEED]");
  command.add_flag("--no-anchors", input.no_anchors, "do not use sync interrupts to order text pokes")->group("");
}

namespace {

void warn_of_missing_folder(const InputOptions& input, const char* option, const std::string& folder, const char* means) {
  std::error_code ignored;
  if (!input.is_repeated && !folder.empty() && !std::filesystem::is_directory(folder, ignored))
    say_on_error(fmt::format("ptdecode: {}: folder {} does not exist; {}\n", option, shown(folder), means));
}

/// Returns the error of an option of raw captures that is malformed, or given for another recording.
Status check_raw_words(const InputOptions& input) {
  if (const Result<RawOptions> raw = raw_options(input); !raw) return raw.error();
  const bool any = !input.pages.empty() || !input.pt_cpu.empty() || !input.modules_path.empty() || !input.tsc_ctc.empty();
  if (input.is_raw() || !(any || input.mtc_period || input.nominal_ratio)) return {};
  return bad_option("--pt-cpu, --pages, --modules, --tsc-ctc, --mtc-freq and --nom-freq need --pt FILE or --winipt FILE");
}

}  // namespace

Result<OpenRequest> open_options(const InputOptions& input) {
  if (Status status = check_raw_words(input); !status) return status.error();
  OpenRequest options;
  options.path = input.path;
  for (const std::string& word : input.symfs) {
    const size_t sign = word.find('=');
    int32_t pid = 0;
    const auto end = std::from_chars(word.data(), word.data() + std::min(sign, word.size()), pid);
    if (sign == std::string::npos || sign == 0 || end.ec != std::errc{} || end.ptr != word.data() + sign || pid <= 0) {
      options.symfs.push_back(word);
    } else {
      options.process_symfs[pid].push_back(word.substr(sign + 1));
      if (options.process_symfs[pid].back().empty()) return bad_option(fmt::format("--symfs: '{}' names no folder after '='", word));
    }
  }
  for (const std::string& root : options.symfs)
    warn_of_missing_folder(input, "--symfs", root, "files are searched at their recorded paths");
  for (const auto& [pid, roots] : options.process_symfs) {
    for (const std::string& root : roots) warn_of_missing_folder(input, "--symfs", root, "no files of its process are found in it");
  }
  for (const std::string& word : input.maps) {
    const Result<AssumedMapping> map = parse_map(word);
    if (!map) return map.error();
    options.assumed.push_back(*map);
  }
  for (const std::string& word : input.images) {
    const Result<RawImage> image = parse_image(word);
    if (!image) return bad_option("--image: " + image.error().message);
    options.images.push_back(*image);
  }
  options.debuginfod = !input.no_debuginfod;
  options.running_kernel = "/";
  if (!input.debug_dirs.empty()) options.debug_dirs = input.debug_dirs;
  for (const std::string& folder : input.debug_dirs) warn_of_missing_folder(input, "--debug-dir", folder, "no debug files are found in it");
  warn_of_missing_folder(input, "--build-id-cache", input.build_id_cache, "no files are found in it");
  if (input.stash != "off") warn_of_missing_folder(input, "--stash", input.stash, "no saved code is used");
  options.build_id_cache = input.build_id_cache;
  if (input.stash.empty()) {
    options.stashes = stash::stash_paths();
  } else if (input.stash != "off") {
    options.stashes = {input.stash};
  }
  options.kcore_after = input.kcore_after;
  options.guestmount = input.guestmount;
  options.guestkallsyms = input.guestkallsyms;
  options.guestmodules = input.guestmodules;
  options.guestvmlinux = input.guestvmlinux;
  options.use_time = !input.no_time;
  options.freeze = input.freeze;
  if (!input.clock_freq.empty()) {
    const Result<uint64_t> hz = parse_frequency_hz(input.clock_freq);
    if (!hz) return hz.error();
    options.clock_hz = *hz;
  }
  options.anchors = !input.no_anchors;
  if (!input.slack.empty()) {
    const Result<uint64_t> slack = parse_duration_ns(input.slack);
    if (!slack) return Error{slack.error().code, "--slack: " + slack.error().message, 0};
    options.slack_ns = *slack;
  }
  if (!input.drop_poke.empty()) {
    const Result<DropPoke> drop = parse_drop_poke(input.drop_poke);
    if (!drop) return drop.error();
    options.drop_nth_poke = drop->every;
    options.drop_poke_seed = drop->seed;
  }
  return options;
}

Result<RawOptions> raw_options(const InputOptions& input) {
  RawOptions raw;
  raw.pt_path = input.pt_path;
  raw.winipt_path = input.winipt_path;
  raw.modules_path = input.modules_path;
  if (!input.pt_cpu.empty()) {
    const Result<pt::CpuId> cpu = parse_cpu(input.pt_cpu);
    if (!cpu) return cpu.error();
    raw.cpu = *cpu;
  }
  if (!input.pages.empty()) {
    const size_t comma = input.pages.find(',');
    if (comma == std::string::npos || comma == 0 || comma + 1 == input.pages.size())
      return bad_option(fmt::format("--pages: '{}' is not DUMP,ADDRS", input.pages));
    raw.pages_dump = input.pages.substr(0, comma);
    raw.pages_addresses = input.pages.substr(comma + 1);
  }
  if (!input.tsc_ctc.empty()) {
    const auto ratio = parse_tsc_ctc(input.tsc_ctc);
    if (!ratio) return ratio.error();
    std::tie(raw.tsc_ctc_ratio_n, raw.tsc_ctc_ratio_d) = *ratio;
  }
  if (input.mtc_period) raw.mtc_period = static_cast<uint8_t>(*input.mtc_period);
  raw.max_nonturbo_ratio = static_cast<uint8_t>(input.nominal_ratio.value_or(0));
  return raw;
}

// Returns the folder that 'ptdecode record --emulate -o PATH' leaves if all of its processes are killed; "" if there is none.
std::string left_by_recorder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path output(path);
  const std::filesystem::path folder = output.has_parent_path() ? output.parent_path() : std::filesystem::path(".");
  const std::string prefix = output.filename().string() + ".work-";
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) return (output.parent_path() / at->path().filename()).string();
  }
  return {};
}

Error explain_absent(const InputOptions& input, const Error& error) {
  std::error_code ignored;
  if (!input.is_raw() && input.path != "-" && !std::filesystem::exists(input.path, ignored)) {
    if (const std::string left = left_by_recorder(input.path); !left.empty())
      return Error{ErrorCode::not_found,
                   fmt::format("{} does not exist: its recorder is still running or was killed; 'ptdecode record --recover {}' completes "
                               "the recording from the files that it left",
                               input.path, left),
                   0};
  }
  if (input.is_raw() || input.path != "perf.data" || std::filesystem::exists(input.path, ignored)) return error;
  return Error{ErrorCode::not_found, "no perf.data in this directory; name a recording with -i PATH ('ptdecode demo' needs none)", 0};
}

Result<std::unique_ptr<Recording>> open_recording(const InputOptions& input) {
  Result<OpenRequest> options = open_options(input);
  if (!options) return options.error();
  Progress progress("reading", !input.quiet);
  options->progress = [&progress](uint64_t done, uint64_t total) {
    progress.set_total(total);
    progress.set(done);
  };
  const auto open = [&]() -> Result<std::unique_ptr<Recording>> {
    if (!input.is_raw()) return ptd::open_recording(*options);
    const Result<RawOptions> raw = raw_options(input);
    if (!raw) return raw.error();
    return open_raw_recording(*raw, *options);
  };
  Result<std::unique_ptr<Recording>> recording = open();
  progress.finish();
  if (!recording) return explain_absent(input, recording.error());
  if (!input.is_repeated) {
    for (const std::string& warning : (*recording)->warnings()) say_on_error("ptdecode: warning: " + shown(warning) + "\n");
  }
  return recording;
}

std::string symbol_warnings(const Recording& recording) {
  std::string text;
  for (const std::string& warning : recording.symbolizer().warnings()) text += "ptdecode: warning: " + shown(warning) + "\n";
  return text;
}

int report_error(const Error& error) {
  const std::string where = error.offset_bytes != 0 ? fmt::format(" (at offset {:#x})", error.offset_bytes) : "";
  say_on_error(fmt::format("ptdecode: {}{}\n", shown(error.message), where));
  return exit_status_of(error.kind());
}

}  // namespace ptd::cli
