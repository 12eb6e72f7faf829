// OpenCounts: how many calls of each function are open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ptd {

/// A counter for each function, in pages that are made where one is used first: memory grows with the functions met. Not thread-safe.
class OpenCounts {
 public:
  /// The counter of `function`, a FunctionId; valid until clear().
  [[gnu::always_inline]] uint32_t& operator[](uint32_t function) {
    const uint32_t index = function + 1;  // kNoFunction has the first one
    const size_t page = index / kPage;
    if (page >= pages_.size() || pages_[page] == nullptr) [[unlikely]]
      make(page);
    return (*pages_[page])[index % kPage];
  }
  /// Sets all counters to 0, and frees their memory.
  void clear() { std::vector<std::unique_ptr<Page>>().swap(pages_); }

 private:
  static constexpr size_t kPage = 64;
  using Page = std::array<uint32_t, kPage>;
  [[gnu::noinline]] void make(size_t page) {
    if (page >= pages_.size()) pages_.resize(page + 1);
    pages_[page] = std::make_unique<Page>();
  }
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace ptd
