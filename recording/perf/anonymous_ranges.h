// AnonymousRanges: the executable anonymous memory of each space while records are read. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "ptdecode/types.h"
#include "recording/image/shared_ranges.h"

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
    SharedRanges& ranges = ranges_[space];
    std::vector<Piece> pieces;
    uint64_t at = first, begin = first, end = first + size_bytes;
    const auto put = [&](uint64_t to, bool again) {
      if (to > at) pieces.push_back({at, to - at, again});
      at = std::max(at, to);
    };
    auto known = ranges.at_or_before(first);
    if (!known || known->end < first) known = ranges.after(first);
    const uint64_t until = end;
    for (; known && known->first <= until; known = ranges.after(known->first)) {
      put(std::clamp(known->first, at, until), false);
      put(std::clamp(known->end, at, until), true);
      begin = std::min(begin, known->first);
      end = std::max(end, known->end);
      ranges.erase(known->first);
    }
    put(until, false);
    ranges.insert({begin, end});
    return pieces;
  }
  /// Something else was mapped there.
  void cut(SpaceId space, uint64_t first, uint64_t size_bytes) {
    const auto found = ranges_.find(space);
    if (found == ranges_.end()) return;
    SharedRanges& ranges = found->second;
    const uint64_t end = first + size_bytes;
    auto at = ranges.at_or_before(first);
    if (!at || at->end <= first) at = ranges.after(first);
    for (; at && at->first < end; at = ranges.after(at->first)) {
      ranges.erase(at->first);
      if (at->first < first) ranges.insert({at->first, first});
      if (at->end > end) ranges.insert({end, at->end});
    }
  }
  /// A child starts with the memory of its parent.
  void fork(SpaceId parent, SpaceId child) {
    if (const auto found = ranges_.find(parent); found != ranges_.end()) ranges_[child] = SharedRanges(found->second);
  }

 private:
  std::map<SpaceId, SharedRanges> ranges_;  // not adjacent
};

}  // namespace ptd
