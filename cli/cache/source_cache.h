// SourceCache: lines of source as text, remembered for as long as they hold. One per thread.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ptdecode/recording.h"

namespace ptd::cli {

/// A line that says that only the kernel's names prove this file to be the module's that was loaded.
[[nodiscard]] std::string unproven_text(std::string_view module_path);

/// Files of modules without a build id whose lines were shown. Thread-safe.
class UnprovenFiles {
 public:
  void add(std::string_view module_path);
  /// unproven_text() of each.
  [[nodiscard]] std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::set<std::string, std::less<>> paths_;
};

/// Bounded: cleared when full. An entry is used only at times for which the symbolizer declares it valid.
class SourceCache {
 public:
  /// `unproven`: receives the unproven modules; may be null.
  SourceCache(const Recording& recording, UnprovenFiles* unproven) : recording_(recording), unproven_(unproven) {}
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
  UnprovenFiles* unproven_;
  std::unordered_map<uint64_t, Entry> entries_;
};

}  // namespace ptd::cli
