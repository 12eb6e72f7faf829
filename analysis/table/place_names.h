// PlaceNames: symbols and threads as indexes into lists of names, for columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/table/column.h"
#include "image/base/growing_cache.h"
#include "ptdecode/flow.h"
#include "ptdecode/guest.h"
#include "ptdecode/recording.h"

namespace ptd {

/// Indexes of what names an address; -1: unknown.
struct PlaceName {
  int32_t symbol = -1, module = -1;
  uint64_t offset_bytes = 0;  ///< in the symbol
};

/// Remembers answers for as long as the symbolizer vouches for them. Not thread-safe. The recording must outlive it.
class PlaceNames {
 public:
  explicit PlaceNames(const Recording& recording) : recording_(recording), keys_(kMostBits), places_(kMostBits) {}

  [[nodiscard]] PlaceName find(SpaceId space, Ip ip, TimeNs when) {
    const Key& key = known(space, ip, when);
    return {key.symbol, places_.at(hash_of(key.space, ip)).module, places_.at(hash_of(key.space, ip)).offset_bytes};
  }
  /// PlaceName::symbol, which takes less time.
  [[nodiscard]] int32_t symbol(SpaceId space, Ip ip, TimeNs when) { return known(space, ip, when).symbol; }
  /// The same, with a time in which the symbol stays the same.
  [[nodiscard]] int32_t symbol(SpaceId space, Ip ip, TimeNs when, Interval& valid) {
    const Key& key = known(space, ip, when);
    valid = places_.at(hash_of(key.space, ip)).valid;
    return key.symbol;
  }
  /// The name that thread `tid` had.
  [[nodiscard]] int32_t comm(int32_t tid, TimeNs when);

  NameList symbols, modules, comms;

 private:
  static constexpr unsigned kMostBits = 16;
  /// What every look-up reads. A key and its place have the same hash; both caches are filled together, so they grow together.
  struct Key {
    Ip ip;
    SpaceId space = kNoSpace;
    int32_t symbol = -1;
  };
  struct Place {
    Interval valid{kTimeMax, kTimeMin};
    uint64_t offset_bytes = 0;
    int32_t module = -1;
  };
  struct Comm {
    int32_t tid = -1;
    Interval valid{kTimeMax, kTimeMin};
    int32_t name = -1;
  };
  [[nodiscard]] static uint64_t hash_of(SpaceId space, Ip ip) { return (ip.value ^ (uint64_t{space.value} << 40)) * 0x9E3779B97F4A7C15ULL; }
  [[nodiscard]] const Key& known(SpaceId space, Ip ip, TimeNs when) {
    space = space_at(space, ip);
    const uint64_t hash = hash_of(space, ip);
    const Key& key = keys_.at(hash);
    const bool same = key.ip == ip && key.space == space;
    return same && (all_valid_.contains(when) || places_.at(hash).valid.contains(when)) ? key : look_up(space, ip, when);
  }
  [[nodiscard]] const Key& look_up(SpaceId space, Ip ip, TimeNs when);
  [[nodiscard]] PlaceName unnamed(SpaceId space, Ip ip, TimeNs when, Interval& valid);

  const Recording& recording_;
  GrowingCache<Key> keys_;
  GrowingCache<Place> places_;
  Interval all_valid_;  ///< moments at which all answers so far are valid
  Comm comm_;
};

/// What is uncertain about a block's code, such as "ambiguous suspect", as indexes into a list of names.
class MarkNames {
 public:
  [[nodiscard]] static bool any(uint16_t block_flags) {
    constexpr uint16_t kShown = kUncertainFlags | (BlockFlag::healed | BlockFlag::assumed);
    return (block_flags & kShown) != 0;
  }
  /// -1: nothing is.
  [[nodiscard]] int32_t index_of(uint16_t block_flags) { return any(block_flags) ? names.index_of(text_of(block_flags)) : -1; }
  NameList names;

 private:
  [[nodiscard]] static std::string text_of(uint16_t block_flags);
};

}  // namespace ptd
