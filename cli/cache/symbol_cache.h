// SymbolCache: names of addresses, remembered for as long as they hold. One per thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "image/base/growing_cache.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// Entries serve only moments for which the symbolizer vouches.
class SymbolCache {
 public:
  struct Name {
    std::string_view name;    ///< empty: unknown
    std::string_view module;  ///< empty: unknown
    std::string_view path;    ///< of the file that is mapped there, as recorded; empty: none
    uint64_t offset_bytes = 0;
  };

  explicit SymbolCache(const Recording& recording) : recording_(recording), entries_(kMostBits) {}
  /// Views stay valid as long as the recording, or (of an unnamed address) until the next call.
  Name find(SpaceId space, Ip ip, TimeNs when);
  /// The same, with the path.
  Name find_with_path(SpaceId space, Ip ip, TimeNs when);
  /// The first address of the function at an address, from symbols or, without one, from .eh_frame; 0 if neither says it, or only of a part
  /// that a compiler split off ("f.cold").
  uint64_t function_at(SpaceId space, Ip ip, TimeNs when);
  /// As Symbolizer::is_landing() and landing_of(); 0: none.
  bool is_landing(SpaceId space, Ip ip, TimeNs when);
  uint64_t landing_of(SpaceId space, Ip ip, TimeNs when);
  /// Whether a pattern (matches_name()) matches a name of the function at the address; an empty list matches all. All calls give the same
  /// list.
  bool wanted(SpaceId space, Ip ip, TimeNs when, const std::vector<std::string>& patterns);

 private:
  static constexpr unsigned kMostBits = 15;
  struct Entry;
  Entry& entry_at(SpaceId space, Ip ip, TimeNs when);
  Entry* entry_of(SpaceId space, Ip ip, TimeNs when);
  [[nodiscard]] Name unnamed(SpaceId space, Ip ip, TimeNs when) const;
  struct Entry {
    Ip ip;
    SpaceId space = kNoSpace;
    Interval valid{kTimeMax, kTimeMin};
    Name name;
    bool has_path = false;
    std::optional<bool> wanted{};
    std::optional<bool> is_landing{};
    std::optional<uint64_t> landing{};
    std::optional<uint64_t> unnamed_start{};  ///< result of function_at() without a symbol
  };
  const Recording& recording_;
  GrowingCache<Entry> entries_;
};

/// The last part of a path; names in brackets stay whole.
[[nodiscard]] std::string_view short_path(std::string_view path);

}  // namespace ptd::cli
