// likeliest_section: see likeliest_section.h.
#include "image/likeliest_section.h"

#include <algorithm>

namespace ptd {
namespace {

/// Returns the times around `when` at which the code at `sites` is that of a record; empty: no record gives any for `when`.
Interval recorded_during(const Timeline& timeline, const std::vector<SiteId>& sites, TimeNs when) {
  constexpr uint32_t kMostVersions = 4096;
  for (const SiteId site : sites) {
    for (uint32_t number = 0; number < std::min(timeline.site(site).versions, kMostVersions); ++number) {
      const Timeline::VersionInfo version = timeline.version(site, number);
      if (version.known && version.possible.contains(when)) return version.possible;
    }
  }
  return {kTimeMax, kTimeMin};
}

}  // namespace

Timeline::SectionAt likeliest_section(const Timeline& timeline, SpaceId space, Ip ip, TimeNs when) {
  const Timeline::SectionAt at = timeline.section_during(space, ip, when);
  if (at.id != kNoSection) return at;
  std::vector<SectionId> sections = timeline.sections_at(space, ip);
  const auto start = [&](SectionId id) { return timeline.section(id).live.first; };
  std::stable_sort(sections.begin(), sections.end(), [&](SectionId a, SectionId b) { return start(b) < start(a); });
  Timeline::SectionAt found = at;
  for (const SectionId id : sections) {
    if (when != kTimeMin && start(id) < when && found.id != kNoSection) break;
    // What a parent mapped after the fork is not the child's.
    if (timeline.section_at(space, ip, start(id)) != id) continue;
    if (when == kTimeMin) return {id, {kTimeMin, kTimeMin}};
    found.id = id;
    if (start(id) < when) break;
  }
  const std::vector<SiteId> sites = found.id == kNoSection ? std::vector<SiteId>() : timeline.sites_in(space, ip, 1);
  if (sites.empty()) return found;
  const Interval recorded = recorded_during(timeline, sites, when);
  found.valid = recorded.empty() ? Interval{when, when} : intersect(found.valid, recorded);
  if (!recorded.empty() && !recorded.overlaps(timeline.section(found.id).live)) found.id = kNoSection;
  return found;
}

}  // namespace ptd
