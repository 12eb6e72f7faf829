// DebugLimits: how much work and memory the debug information of one file may cost. Private to the module.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ptd {

/// Debug information may refer to one list, string or table any number of times, so its cost has no relation to its size. Each limit is a
/// constant plus a multiple of the size of the file on disk; compilers stay far below it.
class DebugLimits {
 public:
  enum class Kind { ranges, names, paths, line_bytes, line_rows, entry_bytes, abbreviations, attributes, scope_steps };
  explicit DebugLimits(uint64_t file_bytes = 0);

  /// Returns how much of a limit is left.
  [[nodiscard]] uint64_t left(Kind kind) const { return left_[static_cast<size_t>(kind)]; }
  /// Consumes `amount` of the limit. Returns false, now and for every later call, if a limit is exceeded.
  bool spend(Kind kind, uint64_t amount) {
    uint64_t& left = left_[static_cast<size_t>(kind)];
    if (amount > left && !exceeded_) exceeded_ = true, kind_ = kind;
    left -= std::min(amount, left);
    return !exceeded_;
  }
  [[nodiscard]] bool exceeded() const { return exceeded_; }
  /// Returns a text that names the exceeded limit; empty if none is exceeded.
  [[nodiscard]] std::string text() const;

 private:
  static constexpr size_t kKinds = 9;
  uint64_t most_[kKinds]{}, left_[kKinds]{};
  bool exceeded_ = false;
  Kind kind_ = Kind::ranges;
};

/// Returns whether at least a fixed amount of memory is left, as a limit of the address space (ulimit -v) may forbid. libdw does not
/// survive a failed allocation, so this is asked before it works.
[[nodiscard]] bool memory_for_debug_info();

}  // namespace ptd
