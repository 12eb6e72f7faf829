// LineRuns: a set of code lines, kept as runs of adjacent ones. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <utility>

namespace ptd {

/// Numbers of lines (address / kCodeLineBytes). Memory and time grow with the runs, not with the lines: a bundle can name 2^58 lines in a
/// few bytes.
class LineRuns {
 public:
  using Runs = std::map<uint64_t, uint64_t>;  ///< first line -> last line; disjoint, not adjacent

  LineRuns() = default;
  LineRuns(std::initializer_list<uint64_t> lines) {
    for (const uint64_t line : lines) insert(line);
  }
  void insert(uint64_t line) { insert(line, line); }
  /// Inserts [first, last]; `last` is less than 2^64 - 1.
  void insert(uint64_t first, uint64_t last) {
    auto at = runs_.upper_bound(first);
    if (at != runs_.begin() && std::prev(at)->second + 1 >= first) --at;
    while (at != runs_.end() && at->first <= last + 1) {
      first = std::min(first, at->first);
      last = std::max(last, at->second);
      at = runs_.erase(at);
    }
    runs_.emplace_hint(at, first, last);
  }
  /// Inserts all lines of the smaller set into the larger one. Returns the number of runs that it inserts.
  uint64_t merge(LineRuns&& other) {
    if (runs_.size() < other.runs_.size()) std::swap(runs_, other.runs_);
    for (const auto& [first, last] : other.runs_) insert(first, last);
    return std::exchange(other.runs_, {}).size();
  }
  [[nodiscard]] bool empty() const { return runs_.empty(); }
  [[nodiscard]] bool contains(uint64_t line) const {
    const auto run = from(line);
    return run != runs_.end() && run->first <= line;
  }
  [[nodiscard]] const Runs& runs() const { return runs_; }
  /// Returns the first run that ends at `line` or after it.
  [[nodiscard]] Runs::const_iterator from(uint64_t line) const {
    const auto after = runs_.upper_bound(line);
    return after != runs_.begin() && std::prev(after)->second >= line ? std::prev(after) : after;
  }

 private:
  Runs runs_;
};

}  // namespace ptd
