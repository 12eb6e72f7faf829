// The contents that code had over time: see code_versions.h.
#include "replay/gdb/code_versions.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "ptdecode/arm_insn.h"
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
  const auto live = static_cast<size_t>(std::find_if(entries.begin(), entries.end(), [](const Entry& each) { return each.is_live; }) - entries.begin());
  const size_t around = live == entries.size() ? 0 : live;
  const size_t first = around < kMostVersions / 2 ? 0 : around - kMostVersions / 2, end = std::min(entries.size(), first + kMostVersions);
  std::string text = first == 0 ? "" : "  and " + std::to_string(first) + " earlier\n";
  for (size_t i = first; i < end; ++i) text += (entries[i].is_live ? "* " : "  ") + entries[i].text + "\n";
  return text + (end == entries.size() ? "" : "  and " + std::to_string(entries.size() - end) + " later\n");
}

struct CodeRange {
  SpaceId space;
  Ip ip;
  uint64_t size_bytes = 1;
};

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
  return (time.first == kTimeMin ? std::string() : seconds(time.first)) + ".." + (time.last == kTimeMax ? std::string() : seconds(time.last));
}

/// Returns the size of the instruction at an address; 1 if there is none.
uint64_t insn_size(ReplaySession& session, ThreadKey thread, Ip ip, ExecMode mode) {
  std::array<std::byte, 16> bytes{};
  const Bytes code = Bytes(bytes).first(session.read(thread, ip, bytes));
  const unsigned size = is_arm(mode) ? classify_arm(code, mode).length_bytes : classify(code, mode).length_bytes;
  return std::clamp<uint64_t>(size, 1, bytes.size());
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
  std::erase_if(periods, [](const Period& each) { return std::all_of(each.sections.begin(), each.sections.end(), [](SectionId id) { return id == kNoSection; }); });
  return periods;
}

/// Lists the mappings that followed each other; if there were several, with the bytes of each.
std::string mappings_text(ReplaySession& session, const CodeRange& range, TimeNs now) {
  const Timeline& timeline = session.recording().timeline();
  const std::vector<Period> periods = periods_of(timeline, range, session.memory().sections_over(range.space, range.ip, range.size_bytes));
  std::vector<Entry> entries;
  for (const Period& period : periods) {
    std::set<std::string> names;
    for (const SectionId id : period.sections) {
      if (id != kNoSection) names.insert(timeline.section(id).path.empty() ? "code" : plain(timeline.section(id).path));
    }
    std::string text = interval_text(period.time) + " mapped: ";
    for (const std::string& name : names) text += (name == *names.begin() ? "" : ", ") + name;
    if (periods.size() > 1) {
      std::vector<std::byte> bytes(range.size_bytes);
      bytes.resize(session.memory().read(range.space, range.ip, period.time.first, bytes));
      text += ": " + (bytes.empty() ? std::string("not known") : bytes_text(bytes));
    }
    entries.push_back({period.time.first <= now && (now < period.time.last || period.time.last == kTimeMax), std::move(text)});
  }
  return list_text(entries);
}

}  // namespace

std::string versions_text(ReplaySession& session, ThreadKey thread, Ip ip) {
  const auto place = session.place_of(thread);
  const TimeNs now = place ? session.code_time(*place) : session.cursor().time();
  const CodeRange range{space_at(place ? place->space : kNoSpace, ip), ip, place ? insn_size(session, thread, ip, place->block->mode) : 1};
  const Timeline& timeline = session.recording().timeline();
  std::string text = mappings_text(session, range, now);
  for (const SiteId site : timeline.sites_in(range.space, ip, range.size_bytes)) {
    const Timeline::SiteInfo info = timeline.site(site);
    text += "changed code at " + hex(info.ip) + ", " + std::to_string(info.size_bytes) + " bytes, " + std::to_string(info.versions) + " versions\n";
    std::vector<Entry> entries;
    for (uint32_t i = 0; i < info.versions; ++i) {
      const Timeline::VersionInfo version = timeline.version(site, i);
      const std::string bytes = version.known ? bytes_text(version.bytes) : "no code, or not known";
      entries.push_back({version.possible.contains(now), interval_text(version.possible) + " " + bytes});
    }
    text += list_text(entries);
  }
  if (text.empty()) return "no code at " + hex(ip) + " at any time\n";
  return text + "(* at " + seconds(now) + " s)\n";
}

}  // namespace ptd::replay
