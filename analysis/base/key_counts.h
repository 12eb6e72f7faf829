// KeyCounts: numbers by key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ptd {

/// Counters found by a key that is not 0: open addressing, so that to count is one line of the cache, and waits for nothing.
class KeyCounts {
 public:
  struct Slot {
    uint64_t key = 0;  ///< 0: empty
    uint64_t count = 0;
  };
  /// The key's counter; valid until the next call.
  [[nodiscard]] uint64_t& count(uint64_t key) {
    Slot& slot = slots_[first_slot(key)];
    return slot.key == key ? slot.count : find(key);
  }
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }

 private:
  [[nodiscard]] uint64_t first_slot(uint64_t key) const { return key * 0x9e3779b97f4a7c15ULL >> shift_; }
  uint64_t& find(uint64_t key);
  static constexpr unsigned kFirstShift = 52;
  unsigned shift_ = kFirstShift;
  size_t used_ = 0;
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << (64 - kFirstShift));
};

}  // namespace ptd
