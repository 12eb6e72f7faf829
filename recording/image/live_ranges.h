// LiveRanges: address ranges that are added, removed and replaced over time. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Determines the end of each range: when another one covered part of it, or when it was closed explicitly. Ranges must be opened in time
/// order.
class LiveRanges {
 public:
  /// Opens [ip, ip + size) from `from` on and ends what it covers. Returns its number: 0, 1, 2, ...
  size_t open(Ip ip, uint64_t size_bytes, TimeNs from) {
    end_in(open_, ip, size_bytes, from);
    end_closed(ip, size_bytes, from);
    const size_t number = lives_.size();
    lives_.push_back({from, kTimeMax});
    open_[ip.value] = {last_of(ip, size_bytes), number};
    return number;
  }
  /// Ends closed ranges that last until later and cover a part of [ip, ip + size) before `from`: something else is there then.
  void end_closed(Ip ip, uint64_t size_bytes, TimeNs from) { end_in(closed_, ip, size_bytes, from); }
  /// Ends the open range that starts at `ip`, at `when` (inclusive). Returns whether there is one.
  bool close(Ip ip, TimeNs when) {
    const auto at = open_.find(ip.value);
    if (at == open_.end()) return false;
    lives_[at->second.number].last = when;
    closed_[at->first] = at->second;
    open_.erase(at);
    return true;
  }
  [[nodiscard]] Interval live(size_t number) const { return lives_[number]; }
  /// Returns the number of the open range that contains `ip`, if any.
  [[nodiscard]] std::optional<size_t> open_at(Ip ip) const {
    const auto next = open_.upper_bound(ip.value);
    if (next == open_.begin() || std::prev(next)->second.last < ip.value) return std::nullopt;
    return std::prev(next)->second.number;
  }

 private:
  struct Open {
    uint64_t last = 0;
    size_t number = 0;
  };
  using Ranges = std::map<uint64_t, Open>;
  static uint64_t last_of(Ip ip, uint64_t size_bytes) { return size_bytes == 0 ? ip.value : ip.value + (size_bytes - 1); }
  void end_in(Ranges& ranges, Ip ip, uint64_t size_bytes, TimeNs from) {
    auto at = ranges.upper_bound(ip.value);
    if (at != ranges.begin() && std::prev(at)->second.last >= ip.value) --at;
    for (; at != ranges.end() && at->first <= last_of(ip, size_bytes); at = ranges.erase(at)) {
      TimeNs& last = lives_[at->second.number].last;
      last = std::min(last, from.value == 0 ? from : TimeNs{from.value - 1});
    }
  }
  Ranges open_, closed_;  // by first address; all are disjoint
  std::vector<Interval> lives_;
};

}  // namespace ptd
