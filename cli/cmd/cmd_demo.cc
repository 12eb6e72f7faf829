// `ptdecode demo`: the bundled recording of code that patches itself, decoded and explained.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "cli/cmd/commands.h"
#include "cli/list/code_text.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/report/finding_text.h"
#include "cli/text/output.h"
#include "cli/verify/checkpoint_check.h"
#include "cli/verify/flow_sample.h"
#include "cli/verify/reference_compare.h"
#include "image/base/environment.h"

namespace ptd::cli {

namespace {

namespace fs = std::filesystem;

constexpr size_t kListedSites = 8, kListedVersions = 4, kListedHits = 8, kLinesCompared = 200'000;
constexpr size_t kLinesBefore = 4, kLinesFrom = 7;  // of the flow through a changed place

struct DemoWords {
  InputOptions input;
  std::string data;
};

/// The folder of the demonstration: beside the installed program, or in the source tree of a build (PTD_SOURCE_FROM_BUILD is the way from
/// the build's folder of the program, so that no path of the build machine is in the program).
std::string find_data(const std::string& given) {
  std::vector<fs::path> places;
  std::error_code ignored;
  if (!given.empty()) return fs::is_directory(given, ignored) ? given : std::string();
  if (const std::string from_environment = environment::demo(); !from_environment.empty()) places.emplace_back(from_environment);
  const fs::path self = environment::own_program();
  if (!self.empty()) places.push_back(self.parent_path().parent_path() / "share" / "ptdecode" / "kernel");
  if (self.parent_path().filename() == "cli")
    places.push_back((self.parent_path() / PTD_SOURCE_FROM_BUILD / "data" / "kernel").lexically_normal());
  for (const fs::path& place : places) {
    if (fs::is_directory(place, ignored)) return place.string();
  }
  return {};
}

/// The recording inside of it: "recording", "perf.data", a bundle, or the folder itself.
InputOptions demo_input(const InputOptions& given, const std::string& folder) {
  InputOptions input = given;
  std::error_code ignored;
  input.path = folder;
  for (const char* name : {"recording", "perf.data", "kernel.bundle"}) {
    if (fs::exists(fs::path(folder) / name, ignored)) {
      input.path = (fs::path(folder) / name).string();
      break;
    }
  }
  if (const fs::path root = fs::path(folder) / "root"; fs::is_directory(root, ignored)) input.symfs.push_back(root.string());
  return input;
}

void heading(std::string_view text) {
  const bool bold = is_terminal(STDOUT_FILENO);
  standard_output().write_as_is(fmt::format("\n{}{}{}\n", bold ? "\x1b[1m" : "", text, bold ? "\x1b[0m" : ""));
}

void say(const std::string& line) { standard_output().write(line + "\n"); }

/// Sites that ran in more than one version first, then those with most versions.
std::vector<SiteId> interesting_sites(const Recording& recording, const ChangedFlow& flow) {
  std::vector<std::tuple<size_t, uint32_t, SiteId>> ranked;
  const Timeline& timeline = recording.timeline();
  for (SiteId id = 0; id < timeline.site_count(); ++id) {
    const auto ran = flow.ran.find(id);
    if (timeline.site(id).versions > 1) ranked.emplace_back(ran == flow.ran.end() ? 0 : ran->second.size(), timeline.site(id).versions, id);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) > std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::vector<SiteId> sites;
  for (const auto& entry : ranked) sites.push_back(std::get<2>(entry));
  return sites;
}

void show_sites(const Recording& recording, const ChangedFlow& flow, const std::vector<SiteId>& sites) {
  heading("1. Code that changed while it was traced");
  const Timeline& timeline = recording.timeline();
  say(fmt::format("{} places have more than one version. The first {}:", sites.size(), std::min(sites.size(), kListedSites)));
  for (size_t i = 0; i < sites.size() && i < kListedSites; ++i) {
    const Timeline::SiteInfo site = timeline.site(sites[i]);
    say(fmt::format("  {:x} {}", site.ip.value, site_symbol_text(recording, sites[i])));
    for (uint32_t number = 0; number < std::min<uint32_t>(site.versions, kListedVersions); ++number) {
      const Timeline::VersionInfo version = timeline.version(sites[i], number);
      say(fmt::format("    version {} {:<42} {}", number, time_text(version.certain.empty() ? version.possible : version.certain),
                      version.known ? hex_text(version.bytes) + "  " + version_line(recording, sites[i], number, true) : "(no code)"));
    }
    if (site.versions > kListedVersions) say(fmt::format("    and {} more", site.versions - kListedVersions));
    const auto ran = flow.ran.find(sites[i]);
    if (ran == flow.ran.end()) continue;
    for (const RanVersion& version : ran->second)
      say(fmt::format("    ran {} time{}: {}  {}", version.times, version.times == 1 ? "" : "s", version.bytes, version.text));
  }
}

void show_int3(const Recording& recording, const ChangedFlow& flow) {
  heading("2. Caught in the act: int3 hits");
  say("While an instruction is replaced, its first byte is an int3. A cpu that executes it traps, and the trace shows the trap.");
  if (flow.int3.empty()) say("  none in this recording");
  for (size_t i = 0; i < flow.int3.size() && i < kListedHits; ++i) {
    const Int3Hit& hit = flow.int3[i];
    say(fmt::format("  {} cpu {} at {:x} {} -> {:x}", time_text({hit.when, hit.when}), hit.cpu, hit.from.value,
                    symbol_text(recording, kKernelSpace, hit.from, hit.when), hit.to.value));
  }
  if (flow.int3.size() > kListedHits) say(fmt::format("  and {} more", flow.int3.size() - kListedHits));
}

/// Streams in order of their cpus.
std::vector<uint32_t> by_cpu(const Recording& recording) {
  const std::vector<StreamInfo>& streams = recording.streams();
  std::vector<uint32_t> order(streams.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return streams[a].cpu < streams[b].cpu; });
  return order;
}

/// The checkpoints that lie beside the recording, if any: files truth.cpuN.txt.
int show_truth(const Recording& recording, const std::string& folder) {
  int status = kExitOk;
  for (const uint32_t stream : by_cpu(recording)) {
    const int32_t cpu = recording.streams()[stream].cpu;
    const fs::path path = fs::path(folder) / fmt::format("truth.cpu{}.txt", cpu);
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    Result<std::vector<Checkpoint>> truth = read_truth(path.string());
    if (!truth) return report_error(truth.error());
    const Result<CheckedStream> checked = check_stream(recording, stream, std::move(*truth), [](uint64_t) {});
    if (!checked) return report_error(checked.error());
    say(
        fmt::format("cpu {}: {} of the {} instructions that it executed are decoded correctly (address and bytes), {} of them marked "
                    "uncertain",
                    cpu, checked->check.right_instructions(), checked->check.expected_count(), checked->check.flagged()));
    if (!checked->equal()) status = kExitFinding;
  }
  return status;
}

/// The lines around the changed place itself, which is marked with '>'.
void show_around(const std::vector<std::string>& lines) {
  const auto marked = std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with('>'); });
  const auto at = static_cast<size_t>(marked - lines.begin());
  const size_t first = at - std::min(at, kLinesBefore), last = std::min(lines.size(), at + kLinesFrom);
  for (size_t line = first; line < last; ++line) say("    " + lines[line]);
  if (last < lines.size()) say("    ...");
}

void show_flow(const ChangedFlow& flow, const std::vector<SiteId>& sites) {
  heading("3. The flow through one such place, before and after");
  if (sites.empty() || !flow.ran.contains(sites.front())) return say("  no changed code ran in this recording");
  for (const RanVersion& version : flow.ran.at(sites.front())) {
    say(fmt::format("  from {} on ({} times), the bytes were {}:", time_text({version.first, version.first}), version.times,
                    version.bytes));
    show_around(version.around);
  }
}

/// The first stretch where two decodes differ, side by side.
void show_difference(const Recording& right, const Recording& frozen, uint32_t stream) {
  const std::vector<uint64_t> starts = right.segment_starts(stream);
  for (size_t segment = 0; segment < starts.size(); ++segment) {
    const std::vector<std::string> a = segment_lines(right, stream, starts[segment], kLinesCompared);
    const std::vector<std::string> b = segment_lines(frozen, stream, starts[segment], kLinesCompared);
    size_t at = 0;
    while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
    if (at == a.size() && at == b.size()) continue;
    say(fmt::format("  cpu {}, after {} instructions of segment {}:", right.streams()[stream].cpu, at, segment));
    say(fmt::format("    {:<58}  {}", "with text pokes", "frozen"));
    for (size_t line = at < 3 ? 0 : at - 3; line < at + 6; ++line) {
      if (line >= a.size() && line >= b.size()) break;
      say(fmt::format("  {} {:<58}  {}", line >= at ? ">" : " ", line < a.size() ? a[line] : "", line < b.size() ? b[line] : ""));
    }
    return;
  }
}

int show_frozen(const Recording& recording, InputOptions input) {
  heading("4. The same trace, decoded with frozen code");
  input.freeze = true;
  input.quiet = input.is_repeated = true;
  Result<std::unique_ptr<Recording>> frozen = open_recording(input);
  if (!frozen) return report_error(frozen.error());
  bool shown = false;
  for (const uint32_t stream : by_cpu(recording)) {
    const Result<ComparedCounts> compared = compare_stream(recording, **frozen, stream, [](uint64_t) {});
    if (!compared) return report_error(compared.error());
    const ComparedCounts& c = *compared;
    say(fmt::format("  cpu {}: of {} instructions, frozen code decodes {} correctly, loses {} and lists {} that did not run",
                    recording.streams()[stream].cpu, c.reference, c.right, c.lost_in_gap + c.wrong_flagged + c.silently_wrong, c.invented));
    if (!shown && c.right != c.reference) {
      show_difference(recording, **frozen, stream);
      shown = true;
    }
  }
  return kExitOk;
}

int run_demo(const DemoWords& words) {
  const std::string folder = find_data(words.data);
  if (folder.empty()) {
    return report_error({ErrorCode::not_found,
                         !words.data.empty() ? "--data " + words.data + ": no such folder"
                                             : "the demo's recording is not installed; name its folder with --data DIR or PTDECODE_DEMO",
                         0});
  }
  const InputOptions input = demo_input(words.input, folder);
  Result<std::unique_ptr<Recording>> opened = open_recording(input);
  if (!opened) return report_error(opened.error());
  const Recording& recording = **opened;
  const ChangedFlow flow = watch_changes(recording);
  heading("A recording of code that patches itself: " + input.path);
  if (const std::string description = recording.description(); !description.empty()) say(description);
  say(fmt::format("{} instructions decoded, {} gaps, {} findings", flow.instructions, flow.gaps, recording.findings().size()));
  const int truth = show_truth(recording, folder);
  if (truth == kExitFile) return truth;
  const std::vector<SiteId> sites = interesting_sites(recording, flow);
  show_sites(recording, flow, sites);
  show_int3(recording, flow);
  show_flow(flow, sites);
  const int status = show_frozen(recording, input);
  heading("Try it yourself");
  say(fmt::format("  ptdecode script -i {} --insn-trace=disasm | less\n  ptdecode image -i {}\n  ptdecode stat -i {}", input.path,
                  input.path, input.path));
  return status != kExitOk ? status : truth;
}

}  // namespace

Command add_demo(CLI::App& app) {
  auto words = std::make_shared<DemoWords>();
  CLI::App& command = *app.add_subcommand("demo",
                                          "Decode the installed example recording of code that patches itself, and explain the "
                                          "output");
  command.add_option("--data", words->data, "folder of the recording (default: share/ptdecode/kernel of the installation)")
      ->type_name("DIR");
  command.footer(
      "Examples:\n"
      "  ptdecode demo\n"
      "  ptdecode demo --data ~/my-recording    the same for your own recording");
  return [words] { return run_demo(*words); };
}

}  // namespace ptd::cli
