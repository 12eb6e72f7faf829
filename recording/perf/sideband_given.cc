// SidebandFold: code and losses that the recorder gives beside records. See sideband_fold.h.
#include <algorithm>
#include <map>

#include "recording/image/given_names.h"
#include "recording/image/jit_names.h"
#include "recording/perf/sideband_fold.h"

namespace ptd {

/// Names of given code, each until other code or a mapping replaces its bytes. `codes`: in order of time.
void SidebandFold::name_given(std::vector<NamedRange> codes) {
  std::map<SpaceId, AddressRanges> places;
  for (const NamedRange& code : codes) places[code.space].add(code.ip.value, code.size_bytes);
  for (const UserMapping& mapping : mappings_) {
    const auto at = places.find(mapping.space);
    if (at == places.end() || mapping.size_bytes == 0 || mapping.size_bytes - 1 > ~mapping.ip.value) continue;
    if (at->second.overlap(mapping.ip.value, mapping.size_bytes)) codes.push_back({mapping.space, mapping.ip, mapping.size_bytes, {mapping.from, kTimeMax}, {}, {}});
  }
  // Of one moment, a mapping is before the code that was given for it.
  std::stable_sort(codes.begin(), codes.end(), [](const NamedRange& a, const NamedRange& b) {
    return std::pair(a.live.first, !a.module.empty()) < std::pair(b.live.first, !b.module.empty());
  });
  GivenNames names;
  for (NamedRange& code : codes) names.add(std::move(code));
  names.add_to(image_);
}

/// What the recorder has given beside records, and what it has not. Code is in the space that its process had at that moment.
void SidebandFold::add_given() {
  std::vector<NamedRange> codes;
  for (const GivenCode& given : options_.given_code) {
    Section section;
    section.space = kKernelSpace;
    if (given.pid >= 0) {
      const Context context = data_.contexts.at_thread(given.pid, given.from);
      section.space = context.space == kNoSpace ? space_of(given.pid) : context.space;
    }
    section.ip = given.ip;
    section.size_bytes = given.code.bytes.size();
    section.live = {given.from, kTimeMax};
    section.code = given.code;
    section.path = given.pid < 0 ? "[kernel]" : "[jit]";
    codes.push_back({section.space, section.ip, section.size_bytes, section.live, given.name, section.path});
    image_.add_section(std::move(section));
  }
  if (!codes.empty()) name_given(std::move(codes));
  for (const LostInput& lost : options_.lost_input) {
    Finding finding;
    finding.kind = FindingKind::records_lost;
    finding.time = {lost.from, kTimeMax};
    finding.what = lost.what;
    image_.builder.add_lost_window(finding.time);
    image_.builder.add_finding(std::move(finding));
  }
}

}  // namespace ptd
