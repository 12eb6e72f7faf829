// CallPaths: the ways in which functions are called. OpenCalls: which calls are open, with the path of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ptdecode/call_tree.h"

namespace ptd {

/// A tree of functions: a path is a function and the path that calls it. Numbered from kRoot, the path of no function, callers first. Not
/// thread-safe.
class CallPaths {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr size_t kMostDepth = 512, kMostPaths = size_t{1} << 22;  ///< limits of memory: recursion makes a path for each depth
  struct Path {
    uint32_t parent = kRoot, depth = 0;
    FunctionId function = kNoFunction;
  };

  /// Returns the path of `function` below `parent`, which is added if it is new. Beyond a limit, returns `parent`.
  uint32_t below(uint32_t parent, FunctionId function);
  [[nodiscard]] const std::vector<Path>& paths() const { return paths_; }
  /// How often below() returned the parent because of a limit.
  [[nodiscard]] uint64_t left_out() const { return left_out_; }

 private:
  std::vector<Path> paths_{Path{}};
  std::unordered_map<uint64_t, uint32_t> ids_;  ///< by parent and function
  uint64_t left_out_ = 0;
};

/// Follows the steps of CallTree, of which some calls may be missing: their callees are then calls of their caller. Not thread-safe.
class OpenCalls {
 public:
  struct Call {
    int64_t number = 0;  ///< from 1, in the order of their starts; 0: none
    uint32_t path = CallPaths::kRoot, depth = 0;
  };
  struct Ended {
    Call call, caller;
  };
  void enter(const CallStep& step);
  /// Returns the call that ends; nothing if its start was not passed to enter().
  [[nodiscard]] std::optional<Ended> leave(const CallStep& step);
  [[nodiscard]] const CallPaths& paths() const { return paths_; }
  /// The innermost open call of a thread that enter() was called for.
  [[nodiscard]] const Call& current(uint32_t thread) const { return threads_[thread].back(); }

 private:
  std::vector<Call>& open(uint32_t thread) {
    if (thread >= threads_.size()) threads_.resize(size_t{thread} + 1);
    return threads_[thread];
  }
  CallPaths paths_;
  std::vector<std::vector<Call>> threads_;  ///< the outermost first
  int64_t last_ = 0;
};

}  // namespace ptd
