// The image over time: see image_history.h.
#include "cli/html/image_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/html/density.h"
#include "cli/list/code_text.h"
#include "cli/report/thread_label.h"
#include "cli/text/size_words.h"
#include "image/mapped_kind.h"
#include "ptdecode/guest.h"

namespace ptd::cli {

namespace {

constexpr uint64_t kRegionGap = 512U << 10;  // more unused addresses than this separate two regions
constexpr uint64_t kBandGap = 64;            // more than this separates two bands of a region
constexpr size_t kBandRows = 24, kRegionBands = 24;
constexpr uint64_t kShownCodeBytes = 24;
enum class ChangeKind : uint8_t { mapped, created, patched, removed, unmapped };
constexpr const char* kKindNames[] = {"mapped", "created", "patched", "removed", "unmapped"};

struct Change {
  TimeNs time;
  ChangeKind kind = ChangeKind::mapped;
  SpaceId space;
  Ip ip;
  uint64_t size_bytes = 0;
  uint32_t id = 0;       ///< of the section, or of the site
  uint32_t version = 0;  ///< of the site, after the change
};

/// Addresses in use, without a hole.
struct Band {
  uint64_t first = 0, last = 0;
  std::vector<SectionId> sections;
  std::vector<const Change*> changes;
};

/// Bands that are close together.
struct Region {
  SpaceId space;
  uint64_t first = 0, last = 0;
  std::vector<Band> bands;
  size_t sections = 0, changes = 0;
  uint64_t mapped_bytes = 0;
};

bool is_site(const Change& change) { return change.kind != ChangeKind::mapped && change.kind != ChangeKind::unmapped; }

/// When a version is certain to be live, as far as that is known.
Interval live(const Timeline::VersionInfo& version) { return version.certain.empty() ? version.possible : version.certain; }

std::vector<Change> changes_of(const Timeline& timeline) {
  std::vector<Change> changes;
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (section.live.first != kTimeMin)
      changes.push_back({section.live.first, ChangeKind::mapped, section.space, section.ip, section.size_bytes, id, 0});
    if (section.live.last != kTimeMax)
      changes.push_back({section.live.last, ChangeKind::unmapped, section.space, section.ip, section.size_bytes, id, 0});
  }
  for (SiteId id = 0; id < timeline.site_count(); ++id) {
    const Timeline::SiteInfo site = timeline.site(id);
    for (uint32_t number = 1; number < site.versions; ++number) {
      const Timeline::VersionInfo before = timeline.version(id, number - 1), after = timeline.version(id, number);
      const ChangeKind kind = !after.known ? ChangeKind::removed : before.known ? ChangeKind::patched : ChangeKind::created;
      if (!before.known && !after.known) continue;
      changes.push_back({live(after).first, kind, site.space, site.ip, site.size_bytes, id, number});
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return std::tuple(a.time, a.space, a.ip) < std::tuple(b.time, b.space, b.ip); });
  return changes;
}

std::vector<Region> regions_of(const Timeline& timeline, const std::vector<Change>& changes) {
  struct Piece {
    SpaceId space;
    uint64_t first, last;
    SectionId section;
  };
  std::vector<Piece> pieces;
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (section.size_bytes != 0) pieces.push_back({section.space, section.ip.value, section.ip.value + (section.size_bytes - 1), id});
  }
  for (SiteId id = 0; id < timeline.site_count(); ++id) {
    const Timeline::SiteInfo site = timeline.site(id);
    if (site.size_bytes != 0) pieces.push_back({site.space, site.ip.value, site.ip.value + (site.size_bytes - 1), kNoSection});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return std::tuple(a.space, a.first, a.last) < std::tuple(b.space, b.first, b.last); });
  std::vector<Region> regions;
  for (const Piece& piece : pieces) {
    if (piece.last < piece.first) continue;  // beyond the end of the address space
    const bool joins = !regions.empty() && regions.back().space == piece.space &&
                       (piece.first <= regions.back().last || piece.first - regions.back().last <= kRegionGap);
    if (!joins) regions.push_back({piece.space, piece.first, piece.last, {}, 0, 0, 0});
    Region& region = regions.back();
    region.last = std::max(region.last, piece.last);
    const bool continues =
        !region.bands.empty() && (piece.first <= region.bands.back().last || piece.first - region.bands.back().last <= kBandGap);
    if (!continues) region.bands.push_back({piece.first, piece.last, {}, {}});
    Band& band = region.bands.back();
    band.last = std::max(band.last, piece.last);
    if (piece.section == kNoSection) continue;
    band.sections.push_back(piece.section);
    ++region.sections;
    region.mapped_bytes += std::min<uint64_t>(timeline.section(piece.section).size_bytes, uint64_t{1} << 46);
  }
  for (const Change& change : changes) {
    const auto after = std::upper_bound(regions.begin(), regions.end(), change, [](const Change& one, const Region& region) {
      return std::pair(one.space, one.ip.value) < std::pair(region.space, region.first);
    });
    if (after == regions.begin()) continue;
    Region& region = *std::prev(after);
    const auto band = std::upper_bound(region.bands.begin(), region.bands.end(), change.ip.value,
                                       [](uint64_t ip, const Band& each) { return ip < each.first; });
    if (band == region.bands.begin()) continue;
    std::prev(band)->changes.push_back(&change);
    ++region.changes;
  }
  return regions;
}

/// A moment as a share of the span, 0 to 1; moments outside are at its ends.
double share_of(TimeNs time, Interval span) {
  if (span.last <= span.first || time <= span.first) return 0;
  if (time >= span.last) return 1;
  return static_cast<double>(time.value - span.first.value) / static_cast<double>(span.last.value - span.first.value);
}

/// The name of a section: of generated code, that of its function.
std::string section_name(const Recording& recording, const Section& section) {
  if (!is_kernel_space(section.space) && is_generated_code(section.path)) {
    const auto symbol =
        recording.symbolizer().find(section.space, section.ip, section.live.first == kTimeMin ? section.live.last : section.live.first);
    if (symbol && symbol->start == section.ip) return std::string(symbol->name);
  }
  return section.path.empty() ? "(unnamed)" : section.path;
}

nlohmann::json mapping_json(const Recording& recording, const Band& band, SectionId id, Interval span) {
  const Section& section = recording.timeline().section(id);
  const uint64_t end = section.ip.value + (section.size_bytes - 1);
  const double size = static_cast<double>(band.last - band.first) + 1;
  const auto height = [&](uint64_t address) { return static_cast<double>(address - band.first) / size; };
  return {{"name", section_name(recording, section)},
          {"first", fmt::format("{:x}", section.ip.value)},
          {"size", section.size_bytes},
          {"known", section.code.bytes.size()},
          {"bottom", height(section.ip.value)},
          {"top", height(end) + 1 / size},
          {"from", share_of(section.live.first, span)},
          {"to", share_of(section.live.last, span)},
          {"appears", section.live.first == kTimeMin ? "" : moment_text(section.live.first)},
          {"ends", section.live.last == kTimeMax ? "" : moment_text(section.live.last)}};
}

/// The changes of code that stays mapped, by row of addresses and part of the time: [row, bin, kind, count]; and the rows that have some:
/// [row, function of the place that changed most often, number of places].
void add_cells(const Recording& recording, const Band& band, size_t rows, Interval span, nlohmann::json& json) {
  const double size = static_cast<double>(band.last - band.first) + 1;
  std::map<std::tuple<size_t, size_t, ChangeKind>, uint64_t> cells;
  std::map<size_t, std::map<SiteId, uint64_t>> sites;  // row -> site -> changes
  for (const Change* change : band.changes) {
    if (!is_site(*change)) continue;
    const auto row =
        std::min(rows - 1, static_cast<size_t>(static_cast<double>(change->ip.value - band.first) / size * static_cast<double>(rows)));
    ++sites[row][change->id];
    if (const size_t bin = bin_of(change->time, span); bin < kTimeBins) ++cells[{row, bin, change->kind}];
  }
  json["cells"] = json["labels"] = nlohmann::json::array();
  for (const auto& [place, count] : cells)
    json["cells"].push_back({std::get<0>(place), std::get<1>(place), kKindNames[static_cast<size_t>(std::get<2>(place))], count});
  for (const auto& [row, counts] : sites) {
    const auto most = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const std::string name = site_symbol_text(recording, most->first);
    json["labels"].push_back({row, name.substr(0, name.find("+0x")), counts.size()});
  }
}

nlohmann::json band_json(const Recording& recording, const Band& band, Interval span, size_t most_mappings) {
  std::vector<SectionId> sections = band.sections;
  const Timeline& timeline = recording.timeline();
  std::stable_sort(sections.begin(), sections.end(),
                   [&](SectionId a, SectionId b) { return timeline.section(a).live.first < timeline.section(b).live.first; });
  const uint64_t size = band.last - band.first;  // minus 1
  const auto rows = static_cast<size_t>(std::min<uint64_t>(kBandRows, size / 16 + 1));
  nlohmann::json json = {{"first", fmt::format("{:x}", band.first)},
                         {"last", fmt::format("{:x}", band.last)},
                         {"size", size + (size != ~uint64_t{0} ? 1 : 0)},
                         {"rows", rows},
                         {"sections", sections.size()},
                         {"mappings", nlohmann::json::array()}};
  const size_t count = std::min(sections.size(), most_mappings);
  for (size_t i = 0; i < count; ++i) json["mappings"].push_back(mapping_json(recording, band, sections[i * sections.size() / count], span));
  add_cells(recording, band, rows, span, json);
  return json;
}

nlohmann::json region_json(const Recording& recording, const Region& region, Interval span, size_t most_mappings) {
  std::vector<const Band*> bands;
  for (const Band& band : region.bands) bands.push_back(&band);
  if (bands.size() > kRegionBands) {
    std::stable_sort(bands.begin(), bands.end(), [](const Band* a, const Band* b) {
      return std::pair(a->changes.size(), a->last - a->first) > std::pair(b->changes.size(), b->last - b->first);
    });
    bands.resize(kRegionBands);
    std::sort(bands.begin(), bands.end(), [](const Band* a, const Band* b) { return a->first < b->first; });
  }
  nlohmann::json json = {{"space", space_label(recording, region.space)},
                         {"first", fmt::format("{:x}", region.first)},
                         {"last", fmt::format("{:x}", region.last)},
                         {"sections", region.sections},
                         {"changes", region.changes},
                         {"all_bands", region.bands.size()},
                         {"bands", nlohmann::json::array()}};
  for (const Band* band : bands)
    json["bands"].push_back(band_json(recording, *band, span, std::max<size_t>(most_mappings / bands.size(), 4)));
  return json;
}

std::string code_text(const Recording& recording, const Change& change, TimeNs when) {
  const uint64_t size = std::clamp<uint64_t>(change.size_bytes, 1, kShownCodeBytes);
  return instructions_text(recording, {change.space, change.ip, when}, size, true);
}

/// What is mapped at the place of a change at a moment.
std::string mapping_text(const Timeline& timeline, const Change& change, TimeNs when) {
  const SectionId id = timeline.section_at(change.space, change.ip, when);
  if (id == kNoSection) return "(nothing is mapped)";
  const Section& section = timeline.section(id);
  return fmt::format("({} of {} from offset {:#x})", size_text(section.size_bytes),
                     section.path.empty() ? "an unnamed mapping" : section.path, section.file_offset_bytes);
}

nlohmann::json change_json(const Recording& recording, const Change& change, Interval span) {
  const Timeline& timeline = recording.timeline();
  std::string name, before = "(no code)", after = "(no code)";
  if (is_site(change)) {
    const Timeline::VersionInfo old = timeline.version(change.id, change.version - 1), now = timeline.version(change.id, change.version);
    name = site_symbol_text(recording, change.id);
    if (old.known) before = code_text(recording, change, live(old).last);
    if (now.known) after = code_text(recording, change, live(now).first);
  } else {
    const Section& section = timeline.section(change.id);
    name = section_name(recording, section);
    const bool mapped = change.kind == ChangeKind::mapped;
    const TimeNs last{change.time.value - (mapped ? 1 : 0)}, next{change.time.value + (mapped ? 0 : 1)};
    const bool is_code = is_kernel_space(change.space) || is_generated_code(section.path);  // a file begins with headers
    before = is_code ? code_text(recording, change, last) : mapping_text(timeline, change, last);
    after = is_code ? code_text(recording, change, next) : mapping_text(timeline, change, next);
  }
  return {{"time", moment_text(change.time)},
          {"at", share_of(change.time, span)},
          {"kind", kKindNames[static_cast<size_t>(change.kind)]},
          {"space", space_label(recording, change.space)},
          {"ip", fmt::format("{:x}", change.ip.value)},
          {"size", change.size_bytes},
          {"name", name},
          {"before", before},
          {"after", after}};
}

/// Evenly spaced ones of each kind, in order of time; rare kinds are complete.
std::vector<const Change*> chosen(const std::vector<Change>& changes, size_t most) {
  std::map<ChangeKind, std::vector<const Change*>> kinds;
  for (const Change& change : changes) kinds[change.kind].push_back(&change);
  std::vector<std::pair<size_t, ChangeKind>> sizes;
  for (const auto& [kind, list] : kinds) sizes.emplace_back(list.size(), kind);
  std::sort(sizes.begin(), sizes.end());
  std::vector<const Change*> taken;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<const Change*>& list = kinds[sizes[i].second];
    const size_t count = std::min(list.size(), (most - taken.size()) / (sizes.size() - i));
    for (size_t k = 0; k < count; ++k) taken.push_back(list[k * list.size() / count]);
  }
  std::sort(taken.begin(), taken.end());  // they are in one list, which is in order of time
  return taken;
}

/// How many changes of what are in each part of the time.
nlohmann::json marks_json(const Timeline& timeline, const std::vector<Change>& changes, Interval span) {
  std::map<std::string, std::pair<TimeBins, uint64_t>> marks;
  for (const Change& change : changes) {
    std::string what = change.kind == ChangeKind::patched ? "text pokes and patches" : "code created or removed";
    if (!is_site(change)) {
      const std::string& path = timeline.section(change.id).path;
      what = path.starts_with("bpf_")        ? "BPF programs loaded or freed"
             : is_kernel_space(change.space) ? "modules loaded or removed"
             : is_generated_code(path)       ? "generated code"
                                             : "files mapped or unmapped";
    }
    auto& [bins, all] = marks[what];
    ++all;
    if (const size_t bin = bin_of(change.time, span); bin < kTimeBins) ++bins[bin];
  }
  nlohmann::json json = nlohmann::json::array();
  for (const auto& [name, counts] : marks) json.push_back({{"name", name}, {"all", counts.second}, {"bins", counts.first}});
  return json;
}

}  // namespace

nlohmann::json image_history_json(const Recording& recording, Interval span, const PageLimits& limits) {
  const Timeline& timeline = recording.timeline();
  const std::vector<Change> changes = changes_of(timeline);
  std::vector<Region> regions = regions_of(timeline, changes);
  std::stable_sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) {
    return std::pair(a.changes, a.mapped_bytes) > std::pair(b.changes, b.mapped_bytes);
  });
  nlohmann::json json = {{"sections", timeline.section_count()},
                         {"places", timeline.site_count()},
                         {"all_changes", changes.size()},
                         {"all_regions", regions.size()},
                         {"marks", marks_json(timeline, changes, span)},
                         {"regions", nlohmann::json::array()},
                         {"changes", nlohmann::json::array()}};
  for (size_t i = 0; i < regions.size() && i < limits.regions; ++i)
    json["regions"].push_back(region_json(recording, regions[i], span, limits.mappings));
  for (const Change* change : chosen(changes, limits.changes)) json["changes"].push_back(change_json(recording, *change, span));
  return json;
}

}  // namespace ptd::cli
