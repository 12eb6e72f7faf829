// KeyCounts: what is found beside the first slot, and growth. KeyJournal: room.
#include "decoder/path_counts.h"

#include <algorithm>
#include <utility>

namespace ptd {

void KeyCounts::clear() {
  shift_ = kFirstShift;
  used_ = 0;
  slots_.assign(size_t{1} << (64 - shift_), Slot{});
}

uint64_t& KeyCounts::find(uint64_t key) {
  const auto place_of = [&](uint64_t wanted) {
    size_t at = first_slot(wanted);
    while (slots_[at].key != 0 && slots_[at].key != wanted) at = (at + 1) & (slots_.size() - 1);
    return at;
  };
  size_t at = place_of(key);
  if (slots_[at].key == key) return slots_[at].count;
  if (4 * ++used_ > slots_.size()) {
    std::vector<Slot> old(slots_.size() * 4);
    old.swap(slots_);
    shift_ -= 2;
    for (const Slot& slot : old) {
      if (slot.key != 0) slots_[place_of(slot.key)] = slot;
    }
    at = place_of(key);
  }
  slots_[at].key = key;
  return slots_[at].count;
}

uint64_t* KeyJournal::room_for(size_t count) {
  if (size_ + count > capacity_) {
    capacity_ = std::max(2 * capacity_, size_ + count);
    auto keys = std::make_unique_for_overwrite<uint64_t[]>(capacity_);
    std::copy_n(keys_.get(), size_, keys.get());
    keys_ = std::move(keys);
  }
  return keys_.get() + size_;
}

}  // namespace ptd
