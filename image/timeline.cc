// Timeline: queries on the data that TimelineBuilder built.
#include "ptdecode/timeline.h"

#include <algorithm>

#include "image/timeline_data.h"

namespace ptd {

Interval TimelineData::possible(const Site& site, uint32_t v) const {
  const TimeNs first = v == 0 ? kTimeMin : version(site, v).open.first;
  const TimeNs last = v + 1 < site.version_count ? version(site, v + 1).open.last : kTimeMax;
  return {first, last};
}

// A time at which an edit may have happened is certain for neither version. An empty interval is {max, min}-like: last < first.
Interval TimelineData::certain(const Site& site, uint32_t v) const {
  Interval result;
  if (v > 0) {
    const TimeNs opened = version(site, v).open.last;
    if (opened == kTimeMax) return {kTimeMax, kTimeMin};
    result.first = after(opened);
  }
  if (v + 1 < site.version_count) {
    const TimeNs closes = version(site, v + 1).open.first;
    if (closes == kTimeMin) return {kTimeMax, kTimeMin};
    result.last = before(closes);
  }
  return result;
}

bool TimelineData::known_at(const Site& site, const Version& version, uint64_t offset) const {
  if (version.known == Known::partial) return bytes(version)[site.size_bytes + offset] != std::byte{0};
  return version.known == Known::all;
}

// open.first and open.last never decrease from version to version, which SiteBuilder ensures.
TimelineData::Range TimelineData::versions_in(const Site& site, Interval when) const {
  const auto begin = versions.begin() + static_cast<ptrdiff_t>(site.first_version);
  const auto end = begin + site.version_count;
  // Version v has closed before `when` if v + 1 certainly opened before it.
  const auto opened = std::lower_bound(begin + 1, end, when.first, [](const Version& v, TimeNs t) { return v.open.last < t; });
  const auto not_yet = std::upper_bound(begin + 1, end, when.last, [](TimeNs t, const Version& v) { return t < v.open.first; });
  Range range{static_cast<uint32_t>(opened - begin) - 1, static_cast<uint32_t>(not_yet - begin) - 1};
  range.last = std::max(range.first, range.last);
  return range;
}

SiteId TimelineData::site_at_or_after(const SpaceData& space, uint64_t address) const {
  const auto begin = sites.begin() + space.first_site;
  const auto at = std::partition_point(begin, begin + space.site_count,
                                       [address](const Site& site) { return site.ip + (site.size_bytes - 1) < address; });
  return static_cast<SiteId>(at - sites.begin());
}

TimelineData::Inherited TimelineData::inherited(const SpaceData& space, uint64_t address) const {
  const MappingSnapshots::Place mapped = snapshots.at(space.start, address), edited = snapshots.at(space.edited, address);
  Inherited found{std::max(mapped.first, edited.first), std::min(mapped.last, edited.last), mapped.section, {}};
  if (edited.section != kNoSection) found.fork = forks.fork_from(edited.section, static_cast<uint32_t>(&space - spaces.data()));
  return found;
}

// Looks up the parents' sections at the fork. Their content is valid at any time at which the child has no mapping of its own.
Timeline::SectionAt TimelineData::section_at(SpaceId space, uint64_t address, TimeNs t) const {
  Interval valid;
  for (bool own = true; index_of(space) < spaces.size(); own = false) {
    const SpaceData& data = spaces[index_of(space)];
    const SectionIndex::Found found = data.sections.at(address, t);
    if (own) valid = found.live;
    if (found.covered) return {found.section, valid};
    if (data.parent == kNoSpace) return {snapshots.at(data.start, address).section, valid};
    space = data.parent;
    t = data.forked;
  }
  return {kNoSection, valid};
}

namespace {
std::shared_ptr<const TimelineData> empty_data() {
  static const std::shared_ptr<const TimelineData> empty = [] {
    auto data = std::make_shared<TimelineData>();
    data->spaces.resize(1);
    return data;
  }();
  return empty;
}
}  // namespace

Timeline::Timeline() : data_(empty_data()) {}
Timeline::Timeline(std::shared_ptr<const TimelineData> data) : data_(data != nullptr ? std::move(data) : empty_data()) {}

const std::vector<Finding>& Timeline::findings() const { return data_->findings; }
const std::vector<Interval>& Timeline::suspect_windows() const { return data_->suspect; }
size_t Timeline::section_count() const { return data_->sections.size(); }
size_t Timeline::site_count() const { return data_->sites.size(); }

bool Timeline::has_suspect_windows() const {
  return !data_->suspect.empty() ||
         std::any_of(data_->spaces.begin(), data_->spaces.end(), [](const auto& space) { return !space.suspect.empty(); });
}

bool Timeline::has_versions() const {
  return !data_->sites.empty() || has_suspect_windows() ||
         std::any_of(data_->spaces.begin(), data_->spaces.end(), [](const auto& space) { return space.sections.changes(); });
}

const Section& Timeline::section(SectionId id) const {
  static const Section none;
  return id < data_->sections.size() ? data_->sections[id] : none;
}

Timeline::SiteInfo Timeline::site(SiteId id) const {
  if (id >= data_->sites.size()) return {kNoSpace, Ip{}, 0, 0};
  const Site& site = data_->sites[id];
  return {site.space, Ip{site.ip}, site.size_bytes, site.version_count};
}

Timeline::VersionInfo Timeline::version(SiteId id, uint32_t number) const {
  VersionInfo info{{}, false, {kTimeMax, kTimeMin}, {kTimeMax, kTimeMin}, CodeFlag::none};
  if (id >= data_->sites.size() || number >= data_->sites[id].version_count) return info;
  const Site& site = data_->sites[id];
  const Version& version = data_->version(site, number);
  if (version.known == Known::all) {
    info.bytes = Bytes{data_->bytes(version), site.size_bytes};
    info.known = true;
  }
  info.possible = data_->possible(site, number);
  info.certain = data_->certain(site, number);
  info.flags = version.flags;
  return info;
}

std::vector<SiteId> Timeline::sites_in(SpaceId space, Ip first, uint64_t size_bytes) const {
  std::vector<SiteId> found;
  space = effective_space(space, first);
  if (size_bytes == 0 || data_->index_of(space) >= data_->spaces.size()) return found;
  const SpaceData& data = data_->spaces[data_->index_of(space)];
  const uint64_t last = first.value + std::min(size_bytes - 1, ~uint64_t{0} - first.value);
  for (SiteId id = data_->site_at_or_after(data, first.value); id < data.first_site + data.site_count; ++id) {
    if (data_->sites[id].ip > last) break;
    found.push_back(id);
  }
  return found;
}

Timeline::SectionAt Timeline::section_during(SpaceId space, Ip ip, TimeNs t) const {
  return data_->section_at(effective_space(space, ip), ip.value, t);
}

std::vector<SectionId> Timeline::sections_at(SpaceId space, Ip ip) const {
  std::vector<SectionRect> rects;
  space = effective_space(space, ip);
  while (data_->index_of(space) < data_->spaces.size()) {
    const SpaceData& data = data_->spaces[data_->index_of(space)];
    data.sections.find(ip.value, Interval{}, rects);
    rects.push_back({0, 0, {}, data_->snapshots.at(data.start, ip.value).section});
    space = data.parent;
  }
  std::vector<SectionId> sections;
  for (const SectionRect& rect : rects) {
    if (rect.section != kNoSection) sections.push_back(rect.section);
  }
  std::sort(sections.begin(), sections.end());
  sections.erase(std::unique(sections.begin(), sections.end()), sections.end());
  return sections;
}

}  // namespace ptd
