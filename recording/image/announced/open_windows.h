// OpenWindows: the windows of time in which a moment lies. Private to recording.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Takes moments in order, in a time of n log n and of what it visits. Not thread-safe.
class OpenWindows {
 public:
  static constexpr size_t kMost = 1024;  ///< at one moment

  void add(Interval time, size_t number) {
    if (time.first < time.last) windows_.push_back({time, number});
  }
  /// Calls visit(number) for each window that begins by `when` and ends after it. Returns false, without a call, if they are too many.
  template <typename Visit>
  bool at(TimeNs when, const Visit& visit) {
    if (!std::exchange(sorted_, true)) std::ranges::stable_sort(windows_, {}, [](const Window& window) { return window.time.first; });
    for (; next_ < windows_.size() && windows_[next_].time.first <= when; ++next_) {
      open_.push_back(windows_[next_]);
      std::ranges::push_heap(open_, ends_later);
    }
    for (; !open_.empty() && open_.front().time.last <= when; open_.pop_back()) std::ranges::pop_heap(open_, ends_later);
    if (open_.size() > kMost) return false;
    for (const Window& window : open_) visit(window.number);
    return true;
  }

 private:
  struct Window {
    Interval time;
    size_t number = 0;
  };
  static bool ends_later(const Window& a, const Window& b) { return b.time.last < a.time.last; }

  std::vector<Window> windows_, open_;  // open_: a heap, the next one to end first
  size_t next_ = 0;
  bool sorted_ = false;
};

}  // namespace ptd
