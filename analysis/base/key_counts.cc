// KeyCounts: see key_counts.h.
#include "analysis/base/key_counts.h"

namespace ptd {

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

}  // namespace ptd
