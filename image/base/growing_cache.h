// GrowingCache: a direct-mapped cache that grows with its use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ptd {

/// Not thread-safe. Entries are default-constructed and replaced one by one; growing empties all of them. A recording has one cache per
/// thread, so a rarely used one must stay small.
template <class Entry>
class GrowingCache {
 public:
  /// Grows up to 2^`most_bits` entries.
  explicit GrowingCache(unsigned most_bits) : most_bits_(most_bits), entries_(size_t{1} << kFirstBits) {}

  /// Returns the entry for a key with this hash, of which the upper bits are used. Valid until the next call of replace().
  [[nodiscard]] Entry& at(uint64_t hash) { return entries_[hash >> (64 - bits_)]; }
  /// Same for an entry that the caller overwrites.
  [[nodiscard]] Entry& replace(uint64_t hash) {
    if (++replaced_ > entries_.size() && bits_ < most_bits_) grow();
    return at(hash);
  }
  [[nodiscard]] auto begin() { return entries_.begin(); }
  [[nodiscard]] auto end() { return entries_.end(); }

 private:
  static constexpr unsigned kFirstBits = 8, kBitsAtOnce = 2;
  void grow() {
    bits_ = bits_ + kBitsAtOnce < most_bits_ ? bits_ + kBitsAtOnce : most_bits_;
    replaced_ = 0;
    entries_ = std::vector<Entry>(size_t{1} << bits_);
  }
  unsigned bits_ = kFirstBits;
  const unsigned most_bits_;
  uint64_t replaced_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace ptd
