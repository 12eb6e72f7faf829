// `ptdecode image`: what code is where, and when.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "analysis/names/name_match.h"
#include "cli/cmd/commands.h"
#include "cli/list/code_text.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/report/finding_text.h"
#include "cli/report/missing_report.h"
#include "cli/report/no_trace.h"
#include "cli/report/thread_label.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"
#include "image/placed_name.h"
#include "ptdecode/guest.h"

namespace ptd::cli {

namespace {

constexpr uint64_t kDefaultBytes = 64;

struct ImageWords {
  InputOptions input;
  std::string place, at, diff, syntax = "att";
  uint64_t size_bytes = 0;
  int32_t tid = -1;
  bool versions = false;
};

/// The kernel of the thread that --tid chooses; without it, that of the host.
SpaceId kernel_of(const ImageWords& words) { return kernel_of_machine(machine_of_thread(words.tid)); }

bool mapped_at(const Section& section, TimeNs when) { return section.live.contains(when); }

/// Whether a mapping is there, and none over it: later mappings of parts of it do not end its time.
bool shows_at(const Timeline& timeline, SectionId id, TimeNs when) {
  const Section& section = timeline.section(id);
  if (!mapped_at(section, when) || section.size_bytes == 0) return false;
  return timeline.section_at(section.space, section.ip, when) == id ||
         timeline.section_at(section.space, section.ip + (section.size_bytes - 1), when) == id;
}

std::string section_line(const Recording& recording, const Section& section) {
  const char* bytes = section.code.bytes.empty() ? "no bytes" : section.code.bytes.size() < section.size_bytes ? "part" : "bytes";
  return fmt::format("{:>6} {:016x}-{:016x} {:<9} {}{}{}  [{}]\n", space_label(recording, section.space), section.ip.value,
                     section.ip.value + section.size_bytes, bytes, section.path.empty() ? "(unnamed)" : shown(section.path),
                     section.build_id.empty() ? "" : " build id " + shown(section.build_id), section.assumed ? " {assumed}" : "",
                     time_text(section.live));
}

int list_map(const Recording& recording, const ImageWords& words, std::optional<TimeNs> when, SpaceId user_space) {
  std::vector<SectionId> ids;
  const Timeline& timeline = recording.timeline();
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (when && !mapped_at(section, *when)) continue;
    if (words.tid >= 0 && section.space != kernel_of(words) && section.space != user_space) continue;
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [&](SectionId a, SectionId b) {
    const Section &x = timeline.section(a), &y = timeline.section(b);
    return std::tuple(x.space, x.ip, x.live.first) < std::tuple(y.space, y.ip, y.live.first);
  });
  Output& output = standard_output();
  for (const SectionId id : ids) output.write(section_line(recording, timeline.section(id)));
  output.write(fmt::format("{} sections{}; {} places changed while they were mapped\n", ids.size(),
                           when ? " at " + time_text({*when, *when}) : std::string(), timeline.site_count()));
  return kExitOk;
}

/// What `image --diff` compares.
struct DiffRange {
  Interval times;
  SpaceId kernel = kKernelSpace;
  SpaceId space = kNoSpace;  ///< kNoSpace: all
  Ip first;
  uint64_t size_bytes = 0;  ///< 0: all

  [[nodiscard]] bool contains(SpaceId in, Ip ip, uint64_t bytes) const {
    if (size_bytes != 0)
      return in == space && (ip.value - first.value < size_bytes || first.value - ip.value < std::max<uint64_t>(bytes, 1));
    return space == kNoSpace || in == space || in == kernel;
  }
};

int list_difference(const Recording& recording, const DiffRange& range, bool att_syntax) {
  const Timeline& timeline = recording.timeline();
  const Interval times = range.times;
  Output& output = standard_output();
  size_t differences = 0;
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (shows_at(timeline, id, times.first) == shows_at(timeline, id, times.last) ||
        !range.contains(section.space, section.ip, section.size_bytes))
      continue;
    ++differences;
    output.write((shows_at(timeline, id, times.last) ? "+ " : "- ") + section_line(recording, section));
  }
  for (SiteId id = 0; id < timeline.site_count() && !output.closed(); ++id) {
    const Timeline::SiteInfo site = timeline.site(id);
    if (!range.contains(site.space, site.ip, site.size_bytes)) continue;
    const std::optional<uint32_t> before = version_at(timeline, id, times.first), after = version_at(timeline, id, times.last);
    if (!before || !after || *before == *after) continue;
    const Timeline::VersionInfo a = timeline.version(id, *before), b = timeline.version(id, *after);
    const std::string old_bytes = a.known ? hex_text(a.bytes) : "-", new_bytes = b.known ? hex_text(b.bytes) : "-";
    if (old_bytes == new_bytes && a.known == b.known && std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()))
      continue;
    ++differences;
    output.write(fmt::format("~ {:x} {}\n  - {:<24} {}\n  + {:<24} {}\n", site.ip.value, site_symbol_text(recording, id), old_bytes,
                             version_line(recording, id, *before, att_syntax), new_bytes, version_line(recording, id, *after, att_syntax)));
  }
  const std::string where =
      range.size_bytes == 0 ? std::string() : fmt::format(" in {:x}-{:x}", range.first.value, range.first.value + range.size_bytes);
  output.write(fmt::format("{}{} between {} and {}\n", counted(differences, "difference"), where, time_text({times.first, times.first}),
                           time_text({times.last, times.last})));
  return differences == 0 ? kExitOk : kExitFinding;
}

/// Address spaces, each with a thread by which --tid chooses it.
using Spaces = std::map<uint32_t, int32_t>;

Spaces spaces_at(const Recording& recording, TimeNs moment) {
  Spaces spaces;
  for (const int32_t tid : recording.contexts().threads()) {
    const Context context = recording.contexts().at_thread(tid, moment);
    if (context.space == kNoSpace || is_kernel_space(context.space)) continue;
    const auto [known, is_new] = spaces.emplace(context.space.value, tid);
    if (!is_new && context.pid == tid) known->second = tid;
  }
  return spaces;
}

/// The kernels of guests.
Spaces guest_kernels(const Recording& recording) {
  Spaces kernels;
  for (const Guest& guest : guests_of(recording.contexts()))
    kernels[kernel_of_machine(guest.machine).value] = thread_of_machine(guest.machine, guest.pid);
  for (const int32_t tid : recording.contexts().threads()) {
    if (const auto kernel = kernels.find(kernel_of_machine(machine_of_thread(tid)).value); kernel != kernels.end()) kernel->second = tid;
  }
  return kernels;
}

/// What is at an address of a symbol called `name` in a space.
bool is_named(const Recording& recording, SpaceId space, Ip ip, TimeNs moment, const std::string& name) {
  const std::vector<std::string> names = recording.symbolizer().names_at(space, ip, moment);
  return std::any_of(names.begin(), names.end(), [&](const std::string& each) { return matches_name(name, each); });
}

Error several_spaces(const Recording& recording, const std::string& what, const Spaces& spaces, TimeNs moment) {
  constexpr size_t kListed = 8;
  std::string text;
  size_t listed = 0;
  if (spaces.empty())
    return {ErrorCode::contradictory_options,
            fmt::format("no process has {} at this time: choose another with --at, or a thread with --tid", what), 0};
  for (const auto& [space, tid] : spaces) {
    if (++listed > kListed) break;
    const std::string comm = recording.comm_at(tid, moment);
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", tid, comm.empty() ? "" : " (" + shown(comm) + ")");
  }
  if (spaces.size() > kListed) text += fmt::format(" and {} more", spaces.size() - kListed);
  return {ErrorCode::contradictory_options, fmt::format("{} is in {} address spaces: choose one with --tid: {}", what, spaces.size(), text),
          0};
}

Error no_thread(int32_t tid) {
  return {ErrorCode::no_such_thread,
          fmt::format("the recording has no code of a thread {} at this time (--tid); ptdecode info lists its threads", tid), 0};
}

/// A symbol that a user asked for.
struct SymbolWords {
  const std::string& name;
  const std::vector<Ip>& addresses;  ///< in any space, at any time
  SpaceId kernel = kKernelSpace;
  SpaceId user_space = kNoSpace;  ///< kNoSpace: not chosen
};

Error several_places(const Recording& recording, const std::string& name, const std::vector<CodeSpot>& places) {
  constexpr size_t kListed = 8;
  std::string text;
  for (size_t i = 0; i < std::min(places.size(), kListed); ++i) {
    const auto symbol = recording.symbolizer().find(places[i].space, places[i].ip, places[i].when);
    text += fmt::format("{}{:x} ({}, {})", i == 0 ? "" : ", ", places[i].ip.value,
                        symbol ? shown(placed_name(symbol->place, symbol->name)) : shown(name),
                        symbol ? shown(std::string(symbol->module)) : "?");
  }
  if (places.size() > kListed) text += fmt::format(" and {} more", places.size() - kListed);
  return {ErrorCode::contradictory_options,
          fmt::format("'{}' is at {} places: choose one by its address: {}", shown(name), places.size(), text), 0};
}

/// Finds the one place of a symbol in its kernel and in one of the spaces, which may be other kernels.
Result<CodeSpot> named_place(const Recording& recording, const SymbolWords& symbol, const Spaces& spaces, TimeNs moment) {
  Spaces found;
  std::vector<CodeSpot> places, in_kernel;
  for (const Ip ip : symbol.addresses) {
    if (is_kernel_half(ip) && is_named(recording, symbol.kernel, ip, moment, symbol.name)) in_kernel.push_back({symbol.kernel, ip, moment});
  }
  for (const auto& each : spaces) {
    const SpaceId space{each.first};
    for (const Ip ip : symbol.addresses) {
      if (is_kernel_half(ip) != is_kernel_space(space) || !is_named(recording, space, ip, moment, symbol.name)) continue;
      if (is_kernel_space(space) && !in_kernel.empty()) continue;  // the host's comes first
      if (found.empty() || found.begin()->first == each.first) places.push_back({space, ip, moment});
      found.insert(each);
    }
  }
  if (found.size() > 1) return several_spaces(recording, "'" + shown(symbol.name) + "'", found, moment);
  places.insert(places.end(), in_kernel.begin(), in_kernel.end());
  if (places.size() > 1) return several_places(recording, symbol.name, places);
  if (!places.empty()) return places.front();
  // Not mapped at this time.
  const auto kernel = std::find_if(symbol.addresses.begin(), symbol.addresses.end(), [](Ip ip) { return is_kernel_half(ip); });
  if (kernel != symbol.addresses.end()) return CodeSpot{symbol.kernel, *kernel, moment};
  if (symbol.user_space == kNoSpace) return several_spaces(recording, "'" + shown(symbol.name) + "'", found, moment);
  return CodeSpot{symbol.user_space, symbol.addresses.front(), moment};
}

/// Finds the place of a symbol or address. `user_space`: kNoSpace if neither --tid nor the recording chooses one.
Result<CodeSpot> place_of(const Recording& recording, const ImageWords& words, SpaceId user_space, TimeNs moment) {
  const size_t plus = words.place.find('+');
  const std::string name = words.place.substr(0, plus);
  const std::vector<Ip> named = recording.symbolizer().addresses_of(name);
  Spaces spaces = spaces_at(recording, moment);
  if (named.empty()) {
    const Result<Ip> address = parse_address(words.place);
    if (!address) {
      const std::string missing = missing_file_text(recording, {});
      return Error{
          ErrorCode::no_such_function,
          fmt::format("'{}' is neither a hexadecimal address nor a known symbol{}", words.place, missing.empty() ? "" : "; " + missing), 0};
    }
    const auto is_free = [&](SpaceId space) { return recording.timeline().section_at(space, *address, moment) == kNoSection; };
    const bool of_kernel = is_kernel_half(*address);
    if (of_kernel && (words.tid >= 0 || !is_free(kKernelSpace))) return CodeSpot{kernel_of(words), *address, moment};
    if (of_kernel) spaces = guest_kernels(recording);
    if (!of_kernel && user_space != kNoSpace) return CodeSpot{user_space, *address, moment};
    if (words.tid >= 0) return no_thread(words.tid);
    if (!of_kernel && spaces.size() == 1) return CodeSpot{SpaceId{spaces.begin()->first}, *address, moment};
    std::erase_if(spaces, [&](const auto& space) { return is_free(SpaceId{space.first}); });
    if (of_kernel && spaces.empty()) return CodeSpot{kKernelSpace, *address, moment};
    if (spaces.size() == 1) return CodeSpot{SpaceId{spaces.begin()->first}, *address, moment};
    return several_spaces(recording, fmt::format("{:x}", address->value), spaces, moment);
  }
  Result<Ip> offset = Ip{};
  if (plus != std::string::npos) offset = parse_address(words.place.substr(plus + 1));
  if (!offset) return offset.error();
  if (words.tid >= 0 && user_space == kNoSpace && !is_kernel_half(named.back())) return no_thread(words.tid);
  if (user_space != kNoSpace) spaces = {{user_space.value, words.tid}};
  if (words.tid < 0) spaces.merge(guest_kernels(recording));
  Result<CodeSpot> spot = named_place(recording, {name, named, kernel_of(words), user_space}, spaces, moment);
  if (spot) spot->ip = spot->ip + offset->value;
  return spot;
}

/// The bytes that --size names; without it, the function from the place on.
uint64_t size_of(const Recording& recording, const ImageWords& words, const CodeSpot& spot) {
  const std::optional<Symbol> symbol = recording.symbolizer().find(spot.space, spot.ip, spot.when);
  const bool whole = symbol && symbol->offset_bytes < symbol->size_bytes;
  return words.size_bytes != 0 ? words.size_bytes : whole ? symbol->size_bytes - symbol->offset_bytes : kDefaultBytes;
}

int show_place(const Recording& recording, const ImageWords& words, TimeNs when, SpaceId user_space) {
  const Result<CodeSpot> found = place_of(recording, words, user_space, when);
  if (!found) return report_error(found.error());
  const CodeSpot spot = *found;
  const bool att = words.syntax == "att";
  Output& output = standard_output();
  if (words.versions) {
    const uint64_t size = size_of(recording, words, spot);
    const std::string text = versions_text(recording, spot.space, spot.ip, size, att);
    output.write(text.empty() ? fmt::format("{:x}, {}: one version at all times\n", spot.ip.value, counted(size, "byte")) : text);
    return kExitOk;
  }
  const SectionId section = recording.timeline().section_at(spot.space, spot.ip, when);
  if (section != kNoSection) output.write(section_line(recording, recording.timeline().section(section)));
  output.write(when == kTimeMax ? "at the end:\n" : fmt::format("at {}:\n", time_text({when, when})));
  if (const std::optional<Ip> covering = covering_instruction(recording, spot)) {
    output.write(fmt::format("{:x} is inside this instruction:\n", spot.ip.value) +
                 disassembly_text(recording, {spot.space, *covering, when}, 1, att) +
                 fmt::format("the bytes from {:x}, read as instructions:\n", spot.ip.value));
  }
  output.write(disassembly_text(recording, spot, words.size_bytes == 0 ? kDefaultBytes : words.size_bytes, att));
  return kExitOk;
}

/// Finds the place at either time: a function may exist at one of them only. Without --size, it is the function from the place on.
int show_difference(const Recording& recording, const ImageWords& words, Interval times) {
  DiffRange range{times, kernel_of(words), kNoSpace, Ip{}, 0};
  const auto space_at = [&](TimeNs when) {
    return words.tid >= 0 ? recording.contexts().at_thread(words.tid, when).space : recording.decoder_options().default_space;
  };
  if (words.tid >= 0) range.space = space_at(times.last) != kNoSpace ? space_at(times.last) : space_at(times.first);
  if (words.tid >= 0 && range.space == kNoSpace) return report_error(no_thread(words.tid));
  if (!words.place.empty()) {
    Result<CodeSpot> spot = place_of(recording, words, space_at(times.last), times.last);
    if (!spot || recording.timeline().section_at(spot->space, spot->ip, times.last) == kNoSection) {
      Result<CodeSpot> before = place_of(recording, words, space_at(times.first), times.first);
      if (before) spot = std::move(before);
    }
    if (!spot) return report_error(spot.error());
    range.space = spot->space;
    range.first = spot->ip;
    range.size_bytes = size_of(recording, words, *spot);
  }
  return list_difference(recording, range, words.syntax == "att");
}

int run_image(const ImageWords& words) {
  if (!words.diff.empty() && (words.versions || !words.at.empty()))
    return report_error(
        {ErrorCode::contradictory_options, fmt::format("--diff shows two times: leave out {}", words.versions ? "--versions" : "--at"), 0});
  if (words.size_bytes != 0 && words.place.empty())
    return report_error({ErrorCode::contradictory_options, "--size needs a place: ptdecode image SYMBOL --size BYTES", 0});
  if (words.versions && words.place.empty())
    return report_error({ErrorCode::contradictory_options, "--versions needs a place: ptdecode image SYMBOL --versions", 0});
  std::optional<TimeNs> when;
  if (!words.at.empty()) {
    const Result<uint64_t> ns = parse_seconds_ns(words.at);
    if (!ns) return report_error(ns.error());
    when = TimeNs{*ns};
  }
  Interval range;
  if (!words.diff.empty()) {
    const Result<Interval> parsed = parse_time_range(words.diff);
    if (!parsed) return report_error({ErrorCode::bad_time_window, "--diff needs two times in seconds: A,B", 0});
    range = *parsed;
  }
  Result<std::unique_ptr<Recording>> opened = open_recording(words.input);
  if (!opened) return report_error(opened.error());
  const Recording& recording = **opened;
  if (!has_trace(recording)) note_absent_trace(words.input, recording);
  if (!words.diff.empty()) return show_difference(recording, words, range);
  const TimeNs moment = when.value_or(trace_time(recording).last);
  SpaceId user_space = recording.decoder_options().default_space;
  if (words.tid >= 0) user_space = recording.contexts().at_thread(words.tid, moment).space;
  if (words.place.empty()) return list_map(recording, words, when, user_space);
  return show_place(recording, words, moment, user_space);
}

}  // namespace

Command add_image(CLI::App& app) {
  auto words = std::make_shared<ImageWords>();
  CLI::App& command = *app.add_subcommand("image", "Show the code at an address and time: the map, disassembly, versions, differences");
  add_input_options(command, words->input);
  command.add_option("place", words->place, "an address in hex, a symbol or symbol+0xOFFSET; without it, list the map");
  command.add_option("--at", words->at, "the time, in seconds (default: the end of the recording)");
  command.add_option("--size", words->size_bytes, "number of bytes (default 64; with --versions and --diff, the rest of the function)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 24));
  command.add_flag("--versions", words->versions, "every version of the code at the place, with its time");
  command.add_option("--diff", words->diff,
                     "differences between two times, at the place if one is given: A,B (exit status 3 if there are any)");
  command.add_option("--tid,--pid", words->tid,
                     "the thread whose code is shown, where several processes or virtual machines have the address or symbol");
  command.add_option("--syntax", words->syntax, "att or intel")->check(CLI::IsMember({"att", "intel"}));
  command.footer(
      "Examples:\n"
      "  ptdecode image schedule --at 17.9          the code of schedule() as it was at 17.9 s\n"
      "  ptdecode image schedule --versions --size 512   how text pokes changed it over time\n"
      "  ptdecode image --diff 17.9,18.4            everything that changed in between\n"
      "  ptdecode image schedule --diff 17.9,18.4   what changed in schedule()");
  return [words] { return run_image(*words); };
}

}  // namespace ptd::cli
