// Removes overlaps of AUX records.
#include "recording/trace/aux_ranges.h"

#include <algorithm>

namespace ptd {

NamedRanges each_once(std::vector<AuxRange> ranges) {
  std::stable_sort(ranges.begin(), ranges.end(), [](const AuxRange& a, const AuxRange& b) { return a.first < b.first; });
  NamedRanges named;
  for (AuxRange& range : ranges) {
    if (range.first >= range.last) continue;
    if (!named.ranges.empty() && range.first < named.ranges.back().last) {
      AuxRange& before = named.ranges.back();
      if (named.doubled_bytes == 0) named.first_doubled = range.first;
      named.doubled_bytes += std::min(before.last, range.last) - range.first;
      range.last = std::max(before.last, range.last);
      before.last = range.first;
      if (before.first == before.last) named.ranges.pop_back();
    }
    named.ranges.push_back(range);
  }
  return named;
}

void add_unnamed(std::vector<AuxRange>& named, const std::vector<AuxRange>& more) {
  std::vector<AuxRange> added;
  for (const AuxRange& range : more) {
    uint64_t at = range.first;
    for (auto other = first_after(named, at); other != named.end() && at < range.last; ++other) {
      if (other->first > at) added.push_back({at, std::min(other->first, range.last), range.record});
      at = other->last;
    }
    if (at < range.last) added.push_back({at, range.last, range.record});
  }
  if (added.empty()) return;
  named.insert(named.end(), added.begin(), added.end());
  std::sort(named.begin(), named.end(), [](const AuxRange& a, const AuxRange& b) { return a.first < b.first; });
}

std::vector<AuxRange>::const_iterator first_after(const std::vector<AuxRange>& named, uint64_t offset) {
  return std::upper_bound(named.begin(), named.end(), offset, [](uint64_t value, const AuxRange& range) { return value < range.last; });
}

}  // namespace ptd
