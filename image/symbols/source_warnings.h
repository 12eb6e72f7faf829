// SourceWarnings: files whose debug information or names exceed a limit. Private to the module.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace ptd {

/// The warnings of one Symbolizer: a sentence for each file whose source lines or names are not all used. Thread-safe.
class SourceWarnings {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.insert(text);
  }
  /// Returns the sentences, sorted.
  [[nodiscard]] std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return {texts_.begin(), texts_.end()};
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> texts_;
};

}  // namespace ptd
