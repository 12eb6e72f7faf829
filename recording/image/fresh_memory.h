// Memory that becomes executable after a run-time has written code to it. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Executable anonymous memory of a space, at addresses at which nothing executable was before, or a file. Linux records it when it becomes
/// executable. Run-times that never have memory that is writable and executable write code to it before, so what they logged of it until
/// then is its content.
struct MappedMemory {
  TimeNs since;
  uint64_t first = 0, end = 0;
  std::optional<TimeNs> file_since;  ///< when a file was mapped there, which replaced what was logged before
  /// Returns whether code that was logged at this time, which is no later than `since`, is in it.
  [[nodiscard]] bool has_code_of(TimeNs logged) const { return !file_since || logged > *file_since; }
};

/// The fresh memory of one space, while what was logged of its code is passed in order of time. Not thread-safe.
class FreshMemory {
 public:
  explicit FreshMemory(std::vector<MappedMemory> memory) : memory_(std::move(memory)) {
    std::ranges::stable_sort(memory_, {}, &MappedMemory::since);
  }
  /// Calls show(memory) for what has become executable by `until`, each once.
  template <typename Show>
  void pass(TimeNs until, const Show& show) {
    for (; next_ < memory_.size() && memory_[next_].since <= until; ++next_) show(memory_[next_]);
  }

 private:
  std::vector<MappedMemory> memory_;
  size_t next_ = 0;
};

}  // namespace ptd
