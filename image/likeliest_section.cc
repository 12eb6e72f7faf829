// likeliest_section: see likeliest_section.h.
#include "image/likeliest_section.h"

#include <algorithm>

namespace ptd {

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
  return found;
}

}  // namespace ptd
