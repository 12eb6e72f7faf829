// CodeLimits: the ranges in which a timeline has bytes although its sections are larger; for copies with only the needed code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "ptdecode/guest.h"
#include "ptdecode/types.h"

namespace ptd {

/// Immutable once filled. Outside the given ranges, every address reads as known but without bytes.
class CodeLimits {
 public:
  /// Adds [first, last] of `space`. Ranges of one space must be added in order and not overlap; adjacent ranges are joined.
  void add(SpaceId space, uint64_t first, uint64_t last) {
    const bool of_host = machine_of(space) == 0;
    if (of_host && space.value >= spaces_.size()) spaces_.resize(size_t{space.value} + 1);
    std::vector<Range>& ranges = of_host ? spaces_[space.value] : guests_[space.value];
    if (!ranges.empty() && ranges.back().last + 1 == first) {
      ranges.back().last = last;
    } else {
      ranges.push_back({first, last});
    }
  }
  /// Calls use(space, first, last) for each range.
  template <typename Use>
  void for_each(const Use& use) const {
    for (uint32_t space = 0; space < spaces_.size(); ++space) {
      for (const Range& range : spaces_[space]) use(SpaceId{space}, range.first, range.last);
    }
    for (const auto& [space, ranges] : guests_) {
      for (const Range& range : ranges) use(SpaceId{space}, range.first, range.last);
    }
  }
  [[nodiscard]] bool empty() const { return spaces_.empty() && guests_.empty(); }
  /// Returns how many bytes are available from `ip` on, at most `limit`.
  [[nodiscard]] uint64_t at_hand(SpaceId space, uint64_t ip, uint64_t limit) const {
    const std::vector<Range>& ranges = ranges_of(space);
    auto range = std::upper_bound(ranges.begin(), ranges.end(), ip, [](uint64_t value, const Range& r) { return value < r.first; });
    if (range == ranges.begin()) return 0;
    --range;
    if (ip > range->last) return 0;
    const uint64_t room = range->last - ip;
    return room < limit ? room + 1 : limit;
  }

 private:
  struct Range {
    uint64_t first = 0, last = 0;
  };
  [[nodiscard]] const std::vector<Range>& ranges_of(SpaceId space) const {
    static const std::vector<Range> none;
    if (machine_of(space) == 0) return space.value < spaces_.size() ? spaces_[space.value] : none;
    const auto found = guests_.find(space.value);
    return found == guests_.end() ? none : found->second;
  }
  std::vector<std::vector<Range>> spaces_;         // of the host, by number
  std::map<uint32_t, std::vector<Range>> guests_;  // of guests
};

}  // namespace ptd
