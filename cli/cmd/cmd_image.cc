// `ptdecode image`: what code is where, and when.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/cmd/commands.h"
#include "cli/list/code_text.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/report/finding_text.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

namespace {

struct Words {
  InputOptions input;
  std::string place, at, diff, syntax = "att";
  uint64_t size_bytes = 0;
  int32_t tid = -1;
  bool versions = false;
};

bool mapped_at(const Section& section, TimeNs when) { return section.live.contains(when); }

std::string section_line(const Section& section) {
  const char* bytes = section.code.bytes.empty() ? "no bytes" : section.code.bytes.size() < section.size_bytes ? "part" : "bytes";
  return fmt::format(
      "{:>6} {:016x}-{:016x} {:<9} {}{}{}  [{}]\n", section.space == kKernelSpace ? "kernel" : fmt::format("mm{}", section.space.value),
      section.ip.value, section.ip.value + section.size_bytes, bytes, section.path.empty() ? "(unnamed)" : shown(section.path),
      section.build_id.empty() ? "" : " build id " + shown(section.build_id), section.assumed ? " {assumed}" : "", time_text(section.live));
}

int list_map(const Recording& recording, std::optional<TimeNs> when, SpaceId user_space, bool one_space) {
  std::vector<SectionId> ids;
  const Timeline& timeline = recording.timeline();
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (when && !mapped_at(section, *when)) continue;
    if (one_space && section.space != kKernelSpace && section.space != user_space) continue;
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [&](SectionId a, SectionId b) {
    const Section &x = timeline.section(a), &y = timeline.section(b);
    return std::tuple(x.space, x.ip, x.live.first) < std::tuple(y.space, y.ip, y.live.first);
  });
  Output& output = standard_output();
  for (const SectionId id : ids) output.write(section_line(timeline.section(id)));
  output.write(fmt::format("{} sections{}; {} places changed while they were mapped\n", ids.size(),
                           when ? " at " + time_text({*when, *when}) : std::string(), timeline.site_count()));
  return kExitOk;
}

int list_difference(const Recording& recording, Interval range, bool att_syntax) {
  const Timeline& timeline = recording.timeline();
  Output& output = standard_output();
  size_t differences = 0;
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (mapped_at(section, range.first) == mapped_at(section, range.last)) continue;
    ++differences;
    output.write((mapped_at(section, range.last) ? "+ " : "- ") + section_line(section));
  }
  for (SiteId id = 0; id < timeline.site_count() && !output.closed(); ++id) {
    const std::optional<uint32_t> before = version_at(timeline, id, range.first), after = version_at(timeline, id, range.last);
    if (!before || !after || *before == *after) continue;
    const Timeline::VersionInfo a = timeline.version(id, *before), b = timeline.version(id, *after);
    const std::string old_bytes = a.known ? hex_text(a.bytes) : "-", new_bytes = b.known ? hex_text(b.bytes) : "-";
    if (old_bytes == new_bytes && a.known == b.known && std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()))
      continue;
    ++differences;
    const Timeline::SiteInfo site = timeline.site(id);
    output.write(fmt::format("~ {:x} {}\n  - {:<24} {}\n  + {:<24} {}\n", site.ip.value, site_symbol_text(recording, id), old_bytes,
                             a.known ? one_line_text(a.bytes, site.ip, att_syntax) : "", new_bytes,
                             b.known ? one_line_text(b.bytes, site.ip, att_syntax) : ""));
  }
  output.write(fmt::format("{} between {} and {}\n", counted(differences, "difference"), time_text({range.first, range.first}),
                           time_text({range.last, range.last})));
  return differences == 0 ? kExitOk : kExitFinding;
}

Result<Ip> place_of(const Recording& recording, const std::string& text) {
  const size_t plus = text.find('+');
  const std::vector<Ip> named = recording.symbolizer().addresses_of(text.substr(0, plus));
  if (!named.empty()) {
    if (plus == std::string::npos) return named.front();
    const Result<Ip> offset = parse_address(text.substr(plus + 1));
    if (!offset) return offset.error();
    return named.front() + offset->value;
  }
  if (Result<Ip> address = parse_address(text); address.ok()) return address;
  return Error{ErrorCode::no_such_function, fmt::format("'{}' is neither a hexadecimal address nor a known symbol", text), 0};
}

int show_place(const Recording& recording, const Words& words, TimeNs when, SpaceId user_space) {
  const Result<Ip> ip = place_of(recording, words.place);
  if (!ip) return report_error(ip.error());
  const SpaceId space = is_kernel_half(*ip) ? kKernelSpace : user_space;
  if (space == kNoSpace) {
    if (words.tid < 0) return report_error({ErrorCode::contradictory_options, "the recording has several processes: a user address needs --tid, which names the address space", 0});
    return report_error(
        {ErrorCode::no_such_thread,
         fmt::format("the recording has no code of a thread {} at this time (--tid); ptdecode info lists its threads", words.tid), 0});
  }
  const bool att = words.syntax == "att";
  Output& output = standard_output();
  if (words.versions) {
    const std::string text = versions_text(recording, space, *ip, words.size_bytes == 0 ? 1 : words.size_bytes, att);
    output.write(text.empty() ? fmt::format("{:x}: one version at all times\n", ip->value) : text);
    return kExitOk;
  }
  const SectionId section = recording.timeline().section_at(space, *ip, when);
  if (section != kNoSection) output.write(section_line(recording.timeline().section(section)));
  output.write(when == kTimeMax ? "at the end:\n" : fmt::format("at {}:\n", time_text({when, when})));
  output.write(disassembly_text(recording, {space, *ip, when}, words.size_bytes == 0 ? 64 : words.size_bytes, att));
  return kExitOk;
}

// The space of the only process that has one at this time; kNoSpace if several have.
SpaceId only_space(const Recording& recording, TimeNs moment) {
  std::set<uint32_t> spaces;
  for (const int32_t tid : recording.contexts().threads()) {
    const SpaceId space = recording.contexts().at_thread(tid, moment).space;
    if (space != kNoSpace && space != kKernelSpace) spaces.insert(space.value);
  }
  return spaces.size() == 1 ? SpaceId{*spaces.begin()} : kNoSpace;
}

int run(const Words& words) {
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
  if (recording.streams().empty()) note_absent_trace(words.input, recording);
  if (!words.diff.empty()) return list_difference(recording, range, words.syntax == "att");
  const TimeNs moment = when.value_or(trace_time(recording).last);
  SpaceId user_space = recording.decoder_options().default_space;
  if (words.tid >= 0) {
    user_space = recording.contexts().at_thread(words.tid, moment).space;
  } else if (user_space == kNoSpace && !words.place.empty()) {
    user_space = only_space(recording, moment);
  }
  if (words.place.empty()) return list_map(recording, when, user_space, words.tid >= 0);
  return show_place(recording, words, moment, user_space);
}

}  // namespace

Command add_image(CLI::App& app) {
  auto words = std::make_shared<Words>();
  CLI::App& command = *app.add_subcommand("image", "Show the code at an address and time: the map, disassembly, versions, differences");
  add_input_options(command, words->input);
  command.add_option("place", words->place, "an address in hex, a symbol or symbol+0xOFFSET; without it, list the map");
  command.add_option("--at", words->at, "the time, in seconds (default: the end of the recording)");
  command.add_option("--size", words->size_bytes, "number of bytes (default 64)")->check(CLI::Range(uint64_t{1}, uint64_t{1} << 24));
  command.add_flag("--versions", words->versions, "every version of the code at the place, with its time");
  command.add_option("--diff", words->diff, "differences between two times: A,B (exit status 3 if there are any)");
  command.add_option("--tid,--pid", words->tid, "the thread to which a user address belongs");
  command.add_option("--syntax", words->syntax, "att or intel")->check(CLI::IsMember({"att", "intel"}));
  command.footer(
      "Examples:\n"
      "  ptdecode image schedule --at 17.9          the code of schedule() as it was at 17.9 s\n"
      "  ptdecode image schedule --versions --size 512   how text pokes changed it over time\n"
      "  ptdecode image --diff 17.9,18.4            everything that changed in between");
  return [words] { return run(*words); };
}

}  // namespace ptd::cli
