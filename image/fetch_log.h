// FetchLog: records which code addresses were fetched, that is, what a self-contained copy of a recording must contain.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Code is recorded in aligned lines of this size.
inline constexpr unsigned kCodeLineBits = 6;
inline constexpr uint64_t kCodeLineBytes = uint64_t{1} << kCodeLineBits;

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

/// Thread-safe. Spaces are effective ones: the kernel half belongs to kKernelSpace.
class FetchLog {
 public:
  /// Records a fetch of [ip, ip + size_bytes), truncated at the end of the address space.
  void add(SpaceId space, Ip ip, uint64_t size_bytes) {
    if (size_bytes == 0) return;
    const uint64_t last = ip.value + (size_bytes - 1 < ~uint64_t{0} - ip.value ? size_bytes - 1 : ~uint64_t{0} - ip.value);
    const std::lock_guard lock(mutex_);
    Space& here = spaces_[space.value];
    here.ips.insert(ip.value);
    for (uint64_t line = ip.value >> kCodeLineBits; line <= last >> kCodeLineBits; ++line) here.lines.insert(line);
  }
  /// Returns the numbers of the fetched lines (address / kCodeLineBytes) of each space, in order.
  [[nodiscard]] std::map<uint32_t, std::set<uint64_t>> lines() const {
    const std::lock_guard lock(mutex_);
    std::map<uint32_t, std::set<uint64_t>> out;
    for (const auto& [space, here] : spaces_) out[space].insert(here.lines.begin(), here.lines.end());
    return out;
  }
  /// Returns the start addresses of the fetches in each space, in order.
  [[nodiscard]] std::map<uint32_t, std::vector<uint64_t>> ips() {
    const std::lock_guard lock(mutex_);
    std::map<uint32_t, std::vector<uint64_t>> out;
    for (auto& [space, here] : spaces_) out[space] = here.ips.sorted();
    return out;
  }

 private:
  struct Space {
    AddressSet ips;
    std::unordered_set<uint64_t> lines;
  };
  mutable std::mutex mutex_;
  std::map<uint32_t, Space> spaces_;
};

}  // namespace ptd
