// TextPool: keeps each text once. Private.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "ptdecode/timeline.h"

namespace ptd {

/// Not thread-safe. The texts that it returned are independent of it.
class TextPool {
 public:
  /// Returns the text, which shares its memory with equal ones.
  [[nodiscard]] SharedText shared(std::string_view text) {
    if (const auto known = texts_.find(text); known != texts_.end()) return known->second;
    const SharedText made{std::string(text)};
    texts_.emplace(made, made);
    return made;
  }

 private:
  std::unordered_map<std::string_view, SharedText> texts_;  // the keys are views of the values
};

}  // namespace ptd
