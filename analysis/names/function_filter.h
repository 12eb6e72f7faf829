// FunctionFilter: functions chosen by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ptdecode/function_table.h"

namespace ptd {

/// Remembers which functions any of some patterns (matches_name()) matches by any of their names. Not thread-safe. The table must outlive
/// it.
class FunctionFilter {
 public:
  FunctionFilter(const FunctionTable& functions, std::vector<std::string> patterns)
      : functions_(functions), patterns_(std::move(patterns)) {}
  /// Without patterns, every function is wanted. kNoFunction is called "[not traced]".
  [[nodiscard]] bool wanted(FunctionId id) {
    if (patterns_.empty()) return true;
    const size_t index = id == kNoFunction ? 0 : size_t{id} + 1;
    if (index >= known_.size()) known_.resize(index + 256);
    if (!known_[index]) known_[index] = look_up(id);
    return *known_[index];
  }
  [[nodiscard]] bool empty() const { return patterns_.empty(); }

 private:
  [[nodiscard]] bool look_up(FunctionId id) const;
  const FunctionTable& functions_;
  const std::vector<std::string> patterns_;
  std::vector<std::optional<bool>> known_;
};

}  // namespace ptd
