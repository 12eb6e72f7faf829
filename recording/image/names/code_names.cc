// Sorts names and mappings, and finds when each name ends.
#include "recording/image/names/code_names.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "image/mapped_kind.h"
#include "recording/image/names/address_ranges.h"

namespace ptd {

void CodeNames::add(NamedRange range, TimeNs order, NamedPlace place) {
  if (range.size_bytes == 0 || range.size_bytes - 1 > ~range.ip.value) return;
  codes_.push_back({std::move(range), order, place, false});
}

// Only those in whose place code has a name, also one that may be inherited.
void CodeNames::add_mappings(const UserMappings& mappings, const ForkedSpaces& forks, bool memory_ends) {
  std::map<SpaceId, AddressRanges> places;
  for (const Code& code : codes_) places[code.range.space].add(code.range.ip.value, code.range.size_bytes);
  for (const UserMapping& mapping : mappings) {
    if (mapping.size_bytes == 0 || mapping.size_bytes - 1 > ~mapping.ip.value || (!memory_ends && is_anonymous(mapping.path))) continue;
    const auto has_code = [&](SpaceId space) {
      const auto at = places.find(space);
      return at != places.end() && at->second.overlap(mapping.ip.value, mapping.size_bytes);
    };
    if (!has_code(mapping.space) && forks.find_above(mapping.space, has_code) == kNoSpace) continue;
    codes_.push_back(
        {{mapping.space, mapping.ip, mapping.size_bytes, {mapping.from, kTimeMax}, {}, {}}, mapping.from, NamedPlace::code, true});
  }
}

std::set<SpaceId> CodeNames::add_to(ImageBuild& image, const UserMappings& mappings, const ForkedSpaces& forks, Rules rules) {
  add_mappings(mappings, forks, rules.memory_ends);
  std::stable_sort(codes_.begin(), codes_.end(),
                   [](const Code& a, const Code& b) { return std::tuple(a.order, !a.mapping) < std::tuple(b.order, !b.mapping); });
  std::set<SpaceId> named;
  LiveNames names(rules.early);
  for (Code& code : codes_) {
    if (!code.range.name.empty()) named.insert(code.range.space);
    const NamedRange& range = code.range;
    const auto had_code = [&](SpaceId space) { return names.had_code(space, range.ip, range.size_bytes); };
    const bool inherits = forks.find_above(range.space, had_code) != kNoSpace;
    names.add(std::move(code.range), inherits, code.place);
  }
  names.add_to(image);
  codes_.clear();
  return named;
}

}  // namespace ptd
