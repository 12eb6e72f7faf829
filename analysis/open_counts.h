// OpenCounts: how many calls of each function are open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ptdecode/function_table.h"

namespace ptd {

/// A counter for each function met. Open addressing in a power of two of slots, of which at most half are in use. Not thread-safe.
class OpenCounts {
 public:
  /// The counter of `function`; valid until the next call.
  uint32_t& operator[](FunctionId function) {
    if (2 * used_ >= slots_.size()) grow();
    Slot& slot = slots_[place(function)];
    if (!slot.used) {
      slot = {function, 0, true};
      ++used_;
    }
    return slot.count;
  }
  void clear() {
    slots_.clear();
    used_ = 0;
  }

 private:
  struct Slot {
    FunctionId function = kNoFunction;
    uint32_t count = 0;
    bool used = false;
  };
  [[nodiscard]] size_t place(FunctionId function) const {
    const size_t mask = slots_.size() - 1;
    size_t at = (function * 0x9e3779b1U >> 7) & mask;
    while (slots_[at].used && slots_[at].function != function) at = (at + 1) & mask;
    return at;
  }
  // Functions without an open call are left out.
  void grow() {
    std::vector<Slot> old = std::move(slots_);
    size_t open = 0;
    for (const Slot& slot : old) open += slot.count != 0 ? 1 : 0;
    size_t size = 128;
    while (size < 4 * (open + 1)) size *= 2;
    slots_.assign(size, {});
    used_ = open;
    for (const Slot& slot : old) {
      if (slot.count != 0) slots_[place(slot.function)] = slot;
    }
  }
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace ptd
