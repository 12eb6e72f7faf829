// The contents that code had over time: see code_versions.h.
#include "replay/gdb/code_versions.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "decoder/insn/code_version.h"
#include "decoder/insn/executed_insn.h"
#include "ptdecode/guest.h"
#include "ptdecode/insn.h"
#include "replay/gdb/packets.h"
#include "replay/text.h"

namespace ptd::replay {

namespace {

constexpr size_t kMostVersions = 64;

/// One line of a list, in order of time.
struct Entry {
  bool is_live = false;
  std::string text;
};

/// Lists the entries nearest to the live one.
std::string list_text(const std::vector<Entry>& entries) {
  const auto live =
      static_cast<size_t>(std::find_if(entries.begin(), entries.end(), [](const Entry& each) { return each.is_live; }) - entries.begin());
  const size_t around = live == entries.size() ? 0 : live;
  const size_t first = around < kMostVersions / 2 ? 0 : around - kMostVersions / 2, end = std::min(entries.size(), first + kMostVersions);
  std::string text = first == 0 ? "" : "  and " + std::to_string(first) + " earlier\n";
  for (size_t i = first; i < end; ++i) text += (entries[i].is_live ? "* " : "  ") + entries[i].text + "\n";
  return text + (end == entries.size() ? "" : "  and " + std::to_string(entries.size() - end) + " later\n");
}

/// An instruction.
struct CodeRange {
  SpaceId space;
  Ip ip;
  ExecMode mode = ExecMode::unknown;
  uint64_t size_bytes = 1;
};

constexpr size_t kMostInsnBytes = 16;
constexpr const char* kNotKnown = "no code, or not known";

uint64_t insn_size(Bytes code, ExecMode mode) { return executed_insn(code, mode).length_bytes; }

std::string bytes_text(Bytes bytes) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(bytes.size(), 24); ++i) {
    const char byte = static_cast<char>(bytes[i]);
    text += (text.empty() ? "" : " ") + to_hex(std::string_view(&byte, 1));
  }
  return bytes.size() > 24 ? text + " ..." : text;
}

std::string interval_text(Interval time) {
  if (time.first == kTimeMin && time.last == kTimeMax) return "any time";
  return (time.first == kTimeMin ? std::string() : seconds(time.first)) + ".." +
         (time.last == kTimeMax ? std::string() : seconds(time.last));
}

/// Returns the instruction that the thread sees at an address; one byte if there is none.
CodeRange seen_by(ReplaySession& session, ThreadKey thread, Ip ip) {
  const auto place = session.place_of(thread);
  if (!place) return {space_at(kNoSpace, ip), ip};
  std::array<std::byte, kMostInsnBytes> bytes{};
  const uint64_t size = insn_size(Bytes(bytes).first(session.read(thread, ip, bytes)), place->block->mode);
  return {space_at(place->space, ip), ip, place->block->mode, std::clamp<uint64_t>(size, 1, kMostInsnBytes)};
}

/// Returns the instruction at the range's address as memory had it at a moment, with `part` in its place. Without an instruction, the known
/// bytes of the range.
std::string insn_text(ReplaySession& session, const CodeRange& range, TimeNs when, const PlacedBytes& part = {}) {
  std::array<std::byte, kMostInsnBytes> insn{};
  const size_t size = put_over(insn, range.ip, session.memory().read(range.space, range.ip, when, insn), part);
  const Bytes known = Bytes(insn).first(size);
  const uint64_t length = insn_size(known, range.mode);
  return known.empty() ? kNotKnown : bytes_text(known.first(std::min<size_t>(length != 0 ? length : range.size_bytes, size)));
}

/// Returns the instruction in a version of a site. Other bytes of the version may be unknown.
std::string version_text(ReplaySession& session, const CodeRange& range, SiteId site, uint32_t number, TimeNs when) {
  constexpr unsigned kMost = 16;
  const Timeline& timeline = session.recording().timeline();
  const Timeline::SiteInfo info = timeline.site(site);
  const Timeline::VersionInfo version = timeline.version(site, number);
  if (version.known) return insn_text(session, range, when, {info.ip, version.bytes});
  const Ip start = std::max(range.ip, info.ip), end = std::min(range.ip + range.size_bytes, info.ip + info.size_bytes);
  CodeView view(timeline);
  const VersionFloor floor{site, number};
  std::array<CodeCandidate, kMost> candidates;
  const FetchResult found = view.fetch(range.space, start, {when, when}, {&floor, 1}, candidates, static_cast<unsigned>(end - start));
  for (uint32_t i = 0; i < found.count; ++i) {
    const Bytes bytes = candidates[i].bytes.first(std::min<size_t>(candidates[i].bytes.size(), end - start));
    if (candidates[i].site == site && candidates[i].version == number) return insn_text(session, range, when, {start, bytes});
  }
  return kNotKnown;
}

/// The mappings of a range in a time in which they do not change.
struct Period {
  Interval time;
  std::vector<SectionId> sections;  // of each byte
};

std::vector<Period> periods_of(const Timeline& timeline, const CodeRange& range, const std::vector<SectionId>& sections) {
  std::set<TimeNs> changes;
  for (const SectionId id : sections) {
    changes.insert(timeline.section(id).live.first);
    if (timeline.section(id).live.last != kTimeMax) changes.insert(timeline.section(id).live.last);
  }
  std::vector<Period> periods;
  for (const TimeNs change : changes) {
    std::vector<SectionId> here;
    for (uint64_t i = 0; i < range.size_bytes; ++i) here.push_back(timeline.section_at(range.space, range.ip + i, change));
    if (!periods.empty() && periods.back().sections == here) continue;
    if (!periods.empty()) periods.back().time.last = change;
    periods.push_back({{change, kTimeMax}, std::move(here)});
  }
  std::erase_if(periods, [](const Period& each) {
    return std::all_of(each.sections.begin(), each.sections.end(), [](SectionId id) { return id == kNoSection; });
  });
  return periods;
}

/// Lists the mappings that followed each other; if there were several, with the bytes of each, unless these changed: then the versions have
/// them.
std::string mappings_text(ReplaySession& session, const CodeRange& range, TimeNs now) {
  const Timeline& timeline = session.recording().timeline();
  const std::vector<Period> periods = periods_of(timeline, range, session.memory().sections_over(range.space, range.ip, range.size_bytes));
  const bool has_bytes = periods.size() > 1 && timeline.sites_in(range.space, range.ip, range.size_bytes).empty();
  std::vector<Entry> entries;
  for (const Period& period : periods) {
    std::set<std::string> names;
    for (const SectionId id : period.sections) {
      if (id != kNoSection) names.insert(timeline.section(id).path.empty() ? "code" : plain(timeline.section(id).path));
    }
    std::string text = interval_text(period.time) + " mapped: ";
    for (const std::string& name : names) text += (name == *names.begin() ? "" : ", ") + name;
    if (has_bytes) text += ": " + insn_text(session, range, period.time.first);
    entries.push_back({period.time.first <= now && (now < period.time.last || period.time.last == kTimeMax), std::move(text)});
  }
  return list_text(entries);
}

}  // namespace

std::string versions_text(ReplaySession& session, ThreadKey thread, Ip ip) {
  const auto place = session.place_of(thread);
  const TimeNs now = place ? session.code_time(*place) : session.cursor().time();
  const CodeRange range = seen_by(session, thread, ip);
  const Timeline& timeline = session.recording().timeline();
  std::string text = mappings_text(session, range, now);
  for (const SiteId site : timeline.sites_in(range.space, ip, range.size_bytes)) {
    const Timeline::SiteInfo info = timeline.site(site);
    text += "changed code at " + hex(info.ip) + ", " + std::to_string(info.size_bytes) + " bytes, " + std::to_string(info.versions) +
            " versions\n";
    std::vector<Entry> entries;
    for (uint32_t i = 0; i < info.versions; ++i) {
      const Timeline::VersionInfo version = timeline.version(site, i);
      const bool is_live = version.possible.contains(now);
      const TimeNs when = is_live ? now : moment_in(version.certain.empty() ? version.possible : version.certain);
      entries.push_back({is_live, interval_text(version.possible) + " " + version_text(session, range, site, i, when)});
    }
    text += list_text(entries);
  }
  if (text.empty()) return "no code at " + hex(ip) + " at any time\n";
  return text + "(* at " + seconds(now) + " s)\n";
}

}  // namespace ptd::replay
