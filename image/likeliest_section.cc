// likeliest_section: see likeliest_section.h.
#include "image/likeliest_section.h"

#include <algorithm>

namespace ptd {

Timeline::SectionAt likeliest_section(const Timeline& timeline, SpaceId space, Ip ip, TimeNs when) {
  const Timeline::SectionAt at = timeline.section_during(space, ip, when);
  if (at.id != kNoSection || when != kTimeMin) return at;
  std::vector<SectionId> sections = timeline.sections_at(space, ip);
  const auto start = [&](SectionId id) { return timeline.section(id).live.first; };
  std::stable_sort(sections.begin(), sections.end(), [&](SectionId a, SectionId b) { return start(b) < start(a); });
  for (const SectionId id : sections) {
    // What a parent mapped after the fork is not the child's.
    if (timeline.section_at(space, ip, start(id)) == id) return {id, {kTimeMin, kTimeMin}};
  }
  return at;
}

}  // namespace ptd
