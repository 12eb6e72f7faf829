// AnonymousRanges: the executable anonymous memory of each space while records are read. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Not thread-safe.
class AnonymousRanges {
 public:
  struct Piece {
    uint64_t first = 0, size_bytes = 0;
    bool again = false;  ///< it was there before
  };
  /// Adds [first, first + size) and returns it in pieces that were there before, or not.
  std::vector<Piece> add(SpaceId space, uint64_t first, uint64_t size_bytes) {
    Ranges& ranges = ranges_[space];
    std::vector<Piece> pieces;
    uint64_t at = first, begin = first, end = first + size_bytes;
    const auto put = [&](uint64_t to, bool again) {
      if (to > at) pieces.push_back({at, to - at, again});
      at = std::max(at, to);
    };
    auto known = ranges.upper_bound(first);
    if (known != ranges.begin() && std::prev(known)->second >= first) --known;
    const uint64_t until = end;
    while (known != ranges.end() && known->first <= until) {
      put(std::clamp(known->first, at, until), false);
      put(std::clamp(known->second, at, until), true);
      begin = std::min(begin, known->first);
      end = std::max(end, known->second);
      known = ranges.erase(known);
    }
    put(until, false);
    ranges[begin] = end;
    return pieces;
  }
  /// Something else was mapped there.
  void cut(SpaceId space, uint64_t first, uint64_t size_bytes) {
    const auto found = ranges_.find(space);
    if (found == ranges_.end()) return;
    Ranges& ranges = found->second;
    const uint64_t end = first + size_bytes;
    auto at = ranges.upper_bound(first);
    if (at != ranges.begin() && std::prev(at)->second > first) --at;
    while (at != ranges.end() && at->first < end) {
      const uint64_t begin = at->first, last = at->second;
      at = ranges.erase(at);
      if (begin < first) ranges[begin] = first;
      if (last > end) ranges[end] = last;
    }
  }
  /// A child starts with the memory of its parent.
  void fork(SpaceId parent, SpaceId child) {
    constexpr size_t kMostRanges = 4096;  // more: its memory counts as new
    const auto found = ranges_.find(parent);
    if (found != ranges_.end() && found->second.size() <= kMostRanges) ranges_[child] = Ranges(found->second);
  }

 private:
  using Ranges = std::map<uint64_t, uint64_t>;  // first address -> end; disjoint, not adjacent
  std::map<SpaceId, Ranges> ranges_;
};

}  // namespace ptd
