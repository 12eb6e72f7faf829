// PlaceNames: symbols and threads as indexes into lists of names, for columns.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/table/column.h"
#include "image/base/growing_cache.h"
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
  explicit PlaceNames(const Recording& recording) : recording_(recording), places_(kMostBits) {}

  [[nodiscard]] PlaceName find(SpaceId space, Ip ip, TimeNs when);
  /// The name that thread `tid` had.
  [[nodiscard]] int32_t comm(int32_t tid, TimeNs when);

  NameList symbols, modules, comms;

 private:
  static constexpr unsigned kMostBits = 16;
  struct Entry {
    Ip ip;
    SpaceId space = kNoSpace;
    Interval valid{kTimeMax, kTimeMin};
    PlaceName name;
  };
  struct Comm {
    int32_t tid = -1;
    Interval valid{kTimeMax, kTimeMin};
    int32_t name = -1;
  };
  [[nodiscard]] PlaceName unnamed(SpaceId space, Ip ip, TimeNs when, Interval& valid);

  const Recording& recording_;
  GrowingCache<Entry> places_;
  Comm comm_;
};

}  // namespace ptd
