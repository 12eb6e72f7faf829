// AddressSet: many addresses in little memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ptd {

/// A set that is filled first and read afterwards. An address takes 8 bytes, and up to 16 more until the next compaction. Not thread-safe.
class AddressSet {
 public:
  void insert(uint64_t address) {
    if (!all_.empty() && all_.back() == address) return;
    if (all_.size() >= limit_) compact();
    all_.push_back(address);
  }
  /// Returns the addresses in order, each once. Valid until the next call of a function.
  [[nodiscard]] const std::vector<uint64_t>& sorted() {
    compact();
    return all_;
  }
  /// Returns the same and leaves the set empty.
  [[nodiscard]] std::vector<uint64_t> take() {
    compact();
    sorted_ = 0;
    return std::exchange(all_, {});
  }

 private:
  static constexpr size_t kFirstLimit = 1024;
  void compact() {
    std::sort(all_.begin() + static_cast<std::ptrdiff_t>(sorted_), all_.end());
    std::inplace_merge(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(sorted_), all_.end());
    all_.erase(std::unique(all_.begin(), all_.end()), all_.end());
    sorted_ = all_.size();
    limit_ = std::max(kFirstLimit, 2 * sorted_);
  }
  std::vector<uint64_t> all_;  // the first sorted_ are in order, each once
  size_t sorted_ = 0, limit_ = kFirstLimit;
};

}  // namespace ptd
