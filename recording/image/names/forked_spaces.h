// ForkedSpaces: from which space each one was forked. Private to recording.
#pragma once

#include <map>

#include "ptdecode/types.h"

namespace ptd {

/// Not thread-safe.
class ForkedSpaces {
 public:
  static constexpr int kMostGenerations = 64;  ///< that are followed

  void add(SpaceId parent, SpaceId child) { parents_[child] = parent; }
  /// Calls is_wanted(space) for the spaces that `space` was forked from, the nearest first. Returns the first one for which it is true,
  /// else kNoSpace.
  template <typename IsWanted>
  [[nodiscard]] SpaceId find_above(SpaceId space, const IsWanted& is_wanted) const {
    for (int i = 0; i < kMostGenerations; ++i) {
      const auto parent = parents_.find(space);
      if (parent == parents_.end()) break;
      space = parent->second;
      if (is_wanted(space)) return space;
    }
    return kNoSpace;
  }

 private:
  std::map<SpaceId, SpaceId> parents_;
};

}  // namespace ptd
