// SourceCache: lines of source as text, remembered for as long as they hold. One per thread.
#pragma once

#include <string>
#include <unordered_map>

#include "recording/recording.h"

namespace ptd::cli {

/// Bounded: begins anew when full. Entries serve only moments for which the symbolizer vouches.
class SourceCache {
 public:
  explicit SourceCache(const Recording& recording) : recording_(recording) {}
  /// "parse.c:12", "parse.c:12 (peek inlined at parse.c:30, next inlined at main.c:41)", or "". Valid until the next call.
  const std::string& find(SpaceId space, Ip ip, TimeNs when);

 private:
  static constexpr size_t kMaxEntries = 1U << 16;
  struct Entry {
    SpaceId space = kNoSpace;
    Interval valid;
    std::string text;
  };
  const Recording& recording_;
  std::unordered_map<uint64_t, Entry> entries_;
};

}  // namespace ptd::cli
