// BoundedSearch: finds an open call in a stack of any depth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ptd {

/// Searches stacks of calls from the innermost call on. A search that finds a call, which then ends the calls inside of it, costs less than these
/// calls did. Other searches are limited: after kMost calls that they looked at, only the innermost kAlways calls are searched. So no flow takes a
/// time that grows with the product of its length and its depth. Not thread-safe.
class BoundedSearch {
 public:
  static constexpr size_t kAlways = 256;
  static constexpr uint64_t kMost = 1ULL << 26;  ///< beyond kAlways in each search

  /// Returns the index + 1 of the innermost frame that fits, or 0 if none does. The frames inside of it are about to end. `always`: in the place of
  /// kAlways.
  template <typename Frames, typename Fits>
  size_t innermost(const Frames& frames, Fits fits, size_t always = kAlways) {
    const size_t size = frames.size(), least = looked_at_ > kMost && size > always ? size - always : 0;
    for (size_t i = size; i > least; --i) {
      if (fits(frames[i - 1])) return i;
    }
    looked_at_ += size - least - std::min(size - least, always);
    return 0;
  }
  /// The same if no frame is about to end.
  template <typename Frames, typename Fits>
  size_t look(const Frames& frames, Fits fits) {
    const size_t match = innermost(frames, fits), passed = match == 0 ? 0 : frames.size() - match;
    looked_at_ += passed - std::min(passed, kAlways);
    return match;
  }

 private:
  uint64_t looked_at_ = 0;
};

}  // namespace ptd
