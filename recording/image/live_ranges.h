// LiveRanges: address ranges that are added, removed and replaced over time. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Determines the end of each range: when another one covered part of it, or when it was closed explicitly. Ranges must be opened in time
/// order.
class LiveRanges {
 public:
  /// Opens [ip, ip + size) from `from` on and ends what it covers. Returns its number: 0, 1, 2, ...
  size_t open(Ip ip, uint64_t size_bytes, TimeNs from) {
    const uint64_t first = ip.value, last = size_bytes == 0 ? first : first + (size_bytes - 1);
    auto at = open_.upper_bound(first);
    if (at != open_.begin() && std::prev(at)->second.last >= first) --at;
    while (at != open_.end() && at->first <= last) {
      lives_[at->second.number].last = from.value == 0 ? from : TimeNs{from.value - 1};
      at = open_.erase(at);
    }
    const size_t number = lives_.size();
    lives_.push_back({from, kTimeMax});
    open_[first] = {last, number};
    return number;
  }
  /// Ends the open range that starts at `ip`, at `when` (inclusive). Returns whether there is one.
  bool close(Ip ip, TimeNs when) {
    const auto at = open_.find(ip.value);
    if (at == open_.end()) return false;
    lives_[at->second.number].last = when;
    open_.erase(at);
    return true;
  }
  [[nodiscard]] Interval live(size_t number) const { return lives_[number]; }

 private:
  struct Open {
    uint64_t last = 0;
    size_t number = 0;
  };
  std::map<uint64_t, Open> open_;  // by first address; disjoint
  std::vector<Interval> lives_;
};

}  // namespace ptd
