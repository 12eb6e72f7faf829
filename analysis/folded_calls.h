// FoldedCalls: the calls beyond the deepest one that a stack stores, as return addresses only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// A stack of return addresses. Recursion from one place takes one entry. Beyond kMostRuns entries only the number of calls is known. Not
/// thread-safe.
class FoldedCalls {
 public:
  /// `handler`: of a signal, which may return elsewhere.
  void push(Ip return_to, bool handler) {
    if (!runs_.empty() && unknown_ == 0 && runs_.back().return_to == return_to && runs_.back().handler == handler) {
      ++runs_.back().count;
    } else if (runs_.size() < kMostRuns && unknown_ == 0) {
      runs_.push_back({return_to, 1, handler});
    } else {
      ++unknown_;
    }
  }
  /// Ends the innermost call.
  void pop() {
    if (unknown_ != 0) {
      --unknown_;
    } else if (!runs_.empty() && --runs_.back().count == 0) {
      runs_.pop_back();
    }
  }
  /// Ends the innermost call that returns to `to`, and those inside of it. False: there is none.
  bool pop_to(Ip to) {
    if (unknown_ != 0) {
      --unknown_;
      return true;
    }
    const size_t least = runs_.size() - std::min(runs_.size(), kMaxSearch);
    for (size_t i = runs_.size(); i > least; --i) {
      if (runs_[i - 1].return_to != to) continue;
      runs_.resize(i);
      pop();
      return true;
    }
    return false;
  }
  [[nodiscard]] bool in_handler() const { return unknown_ == 0 && !runs_.empty() && runs_.back().handler; }
  [[nodiscard]] bool empty() const { return runs_.empty() && unknown_ == 0; }
  void clear() {
    runs_.clear();
    unknown_ = 0;
  }

  static constexpr size_t kMostRuns = 1U << 16;

 private:
  static constexpr size_t kMaxSearch = 256;
  struct Run {
    Ip return_to;
    uint64_t count = 0;
    bool handler = false;
  };
  std::vector<Run> runs_;
  uint64_t unknown_ = 0;  ///< calls inside of those of runs_
};

}  // namespace ptd
