// AddressRanges: a set of addresses. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace ptd {

/// A set of addresses, without the last one of memory.
class AddressRanges {
 public:
  void add(uint64_t address, uint64_t size_bytes) {
    uint64_t end = end_of(address, size_bytes);
    auto at = ends_.upper_bound(address);
    if (at != ends_.begin() && std::prev(at)->second >= address) --at;
    while (at != ends_.end() && at->first <= end) {
      address = std::min(address, at->first);
      end = std::max(end, at->second);
      at = ends_.erase(at);
    }
    ends_[address] = end;
  }
  [[nodiscard]] bool overlap(uint64_t address, uint64_t size_bytes) const {
    const auto after = ends_.lower_bound(end_of(address, size_bytes));
    return after != ends_.begin() && std::prev(after)->second > address;
  }

 private:
  static uint64_t end_of(uint64_t address, uint64_t size_bytes) { return address + std::min(size_bytes, ~address); }

  std::map<uint64_t, uint64_t> ends_;  // by first address; disjoint
};

}  // namespace ptd
