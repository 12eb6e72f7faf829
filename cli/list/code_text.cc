// Code bytes of a timeline as text: see code_text.h.
#include "cli/list/code_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/report/finding_text.h"
#include "cli/text/clean_text.h"
#include "decoder/insn/code_version.h"
#include "decoder/insn/executed_insn.h"
#include "ptdecode/code_view.h"
#include "ptdecode/disassembler.h"
#include "ptdecode/insn.h"
#include "recording/image/code_modes.h"

namespace ptd::cli {

namespace {

constexpr uint32_t kListedVersions = 64;

Disassembler::Syntax syntax(bool att) { return att ? Disassembler::Syntax::att : Disassembler::Syntax::intel; }

std::string flag_text(CodeFlag flags) {
  std::string text;
  if (any(flags, CodeFlag::healed)) text += " {healed}";
  if (any(flags, CodeFlag::suspect)) text += " {suspect}";
  if (any(flags, CodeFlag::assumed)) text += " {assumed}";
  return text;
}

}  // namespace

std::string symbol_text(const Recording& recording, SpaceId space, Ip ip, TimeNs when) {
  const std::optional<Symbol> symbol = recording.symbolizer().find(space, ip, when);
  return symbol ? fmt::format("{}+{:#x}", shown(symbol->name), symbol->offset_bytes) : std::string();
}

std::string site_symbol_text(const Recording& recording, SiteId site) {
  const Timeline& timeline = recording.timeline();
  const Timeline::SiteInfo info = timeline.site(site);
  const Interval traced = trace_time(recording);
  for (uint32_t number = info.versions; number-- > 0;) {
    const Timeline::VersionInfo version = timeline.version(site, number);
    if (!version.known) continue;
    const TimeNs when = std::clamp((version.certain.empty() ? version.possible : version.certain).last, traced.first, traced.last);
    const std::string text = symbol_text(recording, info.space, info.ip, when);
    if (!text.empty()) return text;
  }
  return symbol_text(recording, info.space, info.ip, traced.last);
}

Interval trace_time(const Recording& recording) {
  Interval span{kTimeMax, kTimeMin};
  for (const StreamInfo& stream : recording.streams()) {
    if (stream.time.first != kTimeMin) span.first = std::min(span.first, stream.time.first);
    span.last = std::max(span.last, stream.time.last);
  }
  return span.empty() ? Interval{} : span;
}

namespace {

/// One line for each instruction: `line(ip, code, bytes, text)`, or `line` of a place without bytes.
template <typename Line, typename Absent>
std::string code_lines(const Recording& recording, CodeSpot spot, uint64_t size_bytes, bool att_syntax, const Line& line,
                       const Absent& absent) {
  CodeView view(recording.timeline());
  const Disassembler disassembler(syntax(att_syntax));
  std::string text;
  std::array<CodeCandidate, 4> candidates;
  for (Ip ip = spot.ip; ip - spot.ip < size_bytes;) {
    const FetchResult fetched = view.fetch(spot.space, ip, Interval{spot.when, spot.when}, {}, candidates);
    if (fetched.count == 0) {
      const char* why =
          fetched.status == FetchStatus::not_mapped ? "nothing is mapped here at that time" : "mapped, but its bytes were not found";
      return text + absent(ip, why);
    }
    const CodeCandidate& code = candidates[fetched.count - 1];
    const ExecMode mode = code_mode(recording, spot.space, ip, spot.when);
    const Insn insn = executed_insn(code.bytes, mode);
    const Bytes bytes = code.bytes.first(insn.length_bytes == 0 ? 1 : insn.length_bytes);
    text += line(ip, code, bytes, insn.cls == InsnClass::bad ? "(no instruction)" : disassembler.text(bytes, ip, mode));
    ip = ip + bytes.size();
  }
  return text;
}

}  // namespace

std::string disassembly_text(const Recording& recording, CodeSpot spot, uint64_t size_bytes, bool att_syntax) {
  const auto line = [&](Ip ip, const CodeCandidate& code, Bytes bytes, const std::string& text) {
    return fmt::format("{:16x} {:<40} {:<32} {}{}{}\n", ip.value, symbol_text(recording, spot.space, ip, spot.when), hex_text(bytes), text,
                       flag_text(code.flags), code.site == kNoSite ? "" : fmt::format("  ; version {}", code.version));
  };
  const auto absent = [](Ip ip, const char* why) { return fmt::format("{:16x}  ({})\n", ip.value, why); };
  return code_lines(recording, spot, size_bytes, att_syntax, line, absent);
}

std::string instructions_text(const Recording& recording, CodeSpot spot, uint64_t size_bytes, bool att_syntax) {
  const auto line = [](Ip, const CodeCandidate& code, Bytes bytes, const std::string& text) {
    return fmt::format("{}  {}{}\n", hex_text(bytes), text, flag_text(code.flags));
  };
  return code_lines(recording, spot, size_bytes, att_syntax, line, [](Ip, const char* why) { return fmt::format("({})\n", why); });
}

namespace {

/// Reads the instructions of a space at a moment: those of the latest content possible then, with the bytes of `version`, if given, in
/// their place.
class InsnReader {
 public:
  InsnReader(const Recording& recording, SpaceId space, TimeNs when, PlacedBytes version = {})
      : recording_(recording), view_(recording.timeline()), space_(space), when_(when), version_(version) {}

  /// Returns the bytes of the instruction at `ip`, empty if they are unknown or no instruction. Valid until the next call.
  [[nodiscard]] Bytes read(Ip ip) {
    std::array<CodeCandidate, 4> candidates;
    const FetchResult fetched = view_.fetch(space_, ip, Interval{when_, when_}, {}, candidates);
    const Bytes code = fetched.count == 0 ? Bytes() : candidates[fetched.count - 1].bytes;
    const size_t size = std::min(code.size(), insn_.size());
    std::copy_n(code.begin(), size, insn_.begin());
    const Bytes bytes = Bytes(insn_).first(put_over(insn_, ip, size, version_));
    return bytes.first(executed_insn(bytes, mode_at(ip)).length_bytes);
  }

  /// Returns the address of the instruction that lies across `ip`, as the instructions from `start` on are read.
  [[nodiscard]] std::optional<Ip> covering(Ip start, Ip ip) {
    while (start < ip) {
      const size_t length = read(start).size();
      if (length == 0) return std::nullopt;
      if (ip - start < length) return start;
      start = start + length;
    }
    return std::nullopt;
  }

  [[nodiscard]] ExecMode mode_at(Ip ip) const { return code_mode(recording_, space_, ip, when_); }

 private:
  const Recording& recording_;
  CodeView view_;
  SpaceId space_;
  TimeNs when_;
  PlacedBytes version_;
  std::array<std::byte, kFetchSpanBytes> insn_{};
};

std::optional<Ip> covering_instruction(const Recording& recording, InsnReader& reader, CodeSpot spot) {
  constexpr uint64_t kMaxBytes = 1U << 20;
  const std::optional<Symbol> symbol = recording.symbolizer().find(spot.space, spot.ip, spot.when);
  if (!symbol || symbol->offset_bytes > kMaxBytes) return std::nullopt;
  return reader.covering(symbol->start, spot.ip);
}

/// The first instructions that begin in `size_bytes` at a place, after the one within which it lies, joined by "; "; "..." if there are
/// more.
std::string line_at(const Recording& recording, InsnReader& reader, CodeSpot spot, uint64_t size_bytes, bool att_syntax) {
  constexpr int kListed = 6;  // a line stays one that can be read
  const Disassembler disassembler(syntax(att_syntax));
  const Ip end = spot.ip + size_bytes;
  std::string text;
  Ip at = covering_instruction(recording, reader, spot).value_or(spot.ip);
  for (int listed = 0; at < end; ++listed) {
    const Bytes bytes = reader.read(at);
    if (!text.empty()) text += "; ";
    if (bytes.empty() || listed == kListed) return text + "...";
    text += disassembler.text(bytes, at, reader.mode_at(at));
    at = at + bytes.size();
  }
  return text;
}

}  // namespace

std::optional<Ip> covering_instruction(const Recording& recording, CodeSpot spot) {
  InsnReader reader(recording, spot.space, spot.when);
  return covering_instruction(recording, reader, spot);
}

std::string version_line(const Recording& recording, SiteId site, uint32_t number, bool att_syntax) {
  const Timeline::SiteInfo info = recording.timeline().site(site);
  const Timeline::VersionInfo version = recording.timeline().version(site, number);
  if (!version.known) return {};
  const CodeSpot spot{info.space, info.ip, moment_in(version.certain.empty() ? version.possible : version.certain)};
  InsnReader reader(recording, spot.space, spot.when, {spot.ip, version.bytes});
  return line_at(recording, reader, spot, version.bytes.size(), att_syntax);
}

namespace {

// The mappings `ids` that followed each other at an address, in order of time; empty if there was only one.
std::string mappings_text(const Recording& recording, std::vector<SectionId> ids, SpaceId space, Ip ip, uint64_t size_bytes,
                          bool att_syntax) {
  const Timeline& timeline = recording.timeline();
  if (ids.size() < 2) return {};
  std::stable_sort(ids.begin(), ids.end(),
                   [&](SectionId a, SectionId b) { return timeline.section(a).live.first < timeline.section(b).live.first; });
  std::string text = fmt::format("{:x} was mapped {} times\n", ip.value, ids.size());
  for (size_t number = 0; number < std::min<size_t>(ids.size(), kListedVersions); ++number) {
    const Section& section = timeline.section(ids[number]);
    Interval live = section.live;
    if (number + 1 < ids.size()) live.last = std::min(live.last, timeline.section(ids[number + 1]).live.first);
    const uint64_t offset = ip - section.ip;
    const Bytes known = offset < section.code.bytes.size() ? section.code.bytes.subspan(offset) : Bytes();
    const Bytes bytes = known.first(std::min<uint64_t>(known.size(), size_bytes));
    text += fmt::format("  {:>4}  {:<46} {}{}\n", number, time_text(live), bytes.empty() ? "(bytes unknown)" : hex_text(bytes),
                        section.assumed ? " {assumed}" : "");
    InsnReader reader(recording, space, moment_in(live), {section.ip, section.code.bytes});
    text += fmt::format("        {:<46} {}\n", section.path.empty() ? "(unnamed)" : shown(section.path),
                        bytes.empty() ? "" : line_at(recording, reader, {space, ip, moment_in(live)}, bytes.size(), att_syntax));
  }
  if (ids.size() > kListedVersions) text += fmt::format("        and {} more\n", ids.size() - kListedVersions);
  return text;
}

/// Returns `ip` and the addresses in the `size_bytes` after it at which a mapping begins or ends, in order.
std::vector<uint64_t> places_of_mappings(const Timeline& timeline, SpaceId space, Ip ip, uint64_t size_bytes) {
  std::vector<uint64_t> places{ip.value};
  const auto add = [&](uint64_t place) {
    if (place > ip.value && place - ip.value < size_bytes) places.push_back(place);
  };
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (section.space != space) continue;
    add(section.ip.value);
    add(section.ip.value + section.size_bytes);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

// mappings_text() of each part of a range in which other mappings followed each other.
std::string range_mappings_text(const Recording& recording, SpaceId space, Ip ip, uint64_t size_bytes, bool att_syntax) {
  const std::vector<uint64_t> places = places_of_mappings(recording.timeline(), space, ip, size_bytes);
  std::string text;
  std::vector<SectionId> before;
  for (size_t i = 0; i < std::min<size_t>(places.size(), kListedVersions); ++i) {
    std::vector<SectionId> ids = recording.timeline().sections_at(space, Ip{places[i]});
    const uint64_t end = i + 1 < places.size() ? places[i + 1] : ip.value + size_bytes;
    if (i == 0 || ids != before) text += mappings_text(recording, ids, space, Ip{places[i]}, end - places[i], att_syntax);
    before = std::move(ids);
  }
  if (places.size() > kListedVersions)
    text += fmt::format("and {} more addresses at which mappings begin or end\n", places.size() - kListedVersions);
  return text;
}

}  // namespace

std::string versions_text(const Recording& recording, SpaceId space, Ip ip, uint64_t size_bytes, bool att_syntax) {
  const Timeline& timeline = recording.timeline();
  std::string text;
  for (const SiteId id : timeline.sites_in(space, ip, size_bytes)) {
    const Timeline::SiteInfo site = timeline.site(id);
    text += fmt::format("{:x} {}, {} bytes, {} versions\n", site.ip.value, site_symbol_text(recording, id), site.size_bytes, site.versions);
    for (uint32_t number = 0; number < std::min(site.versions, kListedVersions); ++number) {
      const Timeline::VersionInfo version = timeline.version(id, number);
      const std::string bytes = version.known ? hex_text(version.bytes) : "(no code, or bytes unknown)";
      text += fmt::format("  {:>4}  {:<46} {}{}\n", number, time_text(version.certain.empty() ? version.possible : version.certain), bytes,
                          flag_text(version.flags));
      if (version.known) text += fmt::format("        {:<46} {}\n", "", version_line(recording, id, number, att_syntax));
    }
    if (site.versions > kListedVersions) text += fmt::format("        and {} more\n", site.versions - kListedVersions);
  }
  return text + range_mappings_text(recording, space, ip, size_bytes, att_syntax);
}

std::optional<uint32_t> version_at(const Timeline& timeline, SiteId site, TimeNs when) {
  std::optional<uint32_t> found;
  for (uint32_t number = 0; number < timeline.site(site).versions; ++number) {
    const Timeline::VersionInfo version = timeline.version(site, number);
    if (!version.certain.empty() && version.certain.contains(when)) return number;
    if (version.possible.contains(when)) found = number;
  }
  return found;
}

}  // namespace ptd::cli
