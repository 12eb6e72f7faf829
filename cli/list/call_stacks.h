// CallStacks: how deep each thread is in calls, for indentation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::cli {

/// Open calls by thread; bounded. Follows the rules of CallTree: a return ends the call that awaits it and all calls inside it; a jump or
/// return into the middle of an open function (longjmp, a C++ exception) ends all calls inside that function; any other return ends all.
/// Functions are given by their first address, 0 if it is not known.
class CallStacks {
 public:
  void select(int32_t tid) {
    frames_ = &stacks_[tid];
    if (frames_->empty()) frames_->emplace_back();
  }
  [[nodiscard]] size_t depth() const { return frames_ == nullptr ? 0 : frames_->size() - 1; }
  /// Returns the innermost function.
  [[nodiscard]] uint64_t function() const { return frames_ == nullptr ? 0 : frames_->back().function; }
  void set_function(uint64_t function) {
    if (frames_ != nullptr) frames_->back().function = function;
  }
  void call(Ip return_to, uint64_t function) {
    if (frames_ != nullptr && frames_->size() <= kMaxDepth) frames_->push_back({return_to.value, function});
  }
  /// `function_at`: returns the function at an address.
  template <typename FunctionAt>
  void ret(Ip to, FunctionAt function_at) {
    if (frames_ == nullptr) return;
    const size_t awaiting = innermost([to](const Frame& frame) { return frame.return_to == to.value; });
    if (awaiting > 1) return frames_->resize(awaiting - 1);
    const uint64_t function = function_at(to);
    if (function == 0) {
      if (frames_->size() > 1) frames_->pop_back();
    } else if (to.value == function) {  // a return used as a jump
      const bool inner = frames_->size() > 1 && (*frames_)[frames_->size() - 2].function == frames_->back().function;
      if (inner) frames_->pop_back();
      frames_->back().function = function;
    } else if (!go_back(function)) {
      frames_->assign(1, {0, function});
    }
  }
  /// A jump to `to`, which is in `function`.
  void jump(Ip to, uint64_t function) {
    if (frames_ == nullptr || function == 0) return;
    if (to.value == function || !go_back(function)) frames_->back().function = function;
  }
  /// Tracing resumes at `to`: returns from the call that left the traced region, if it was one. Elsewhere it may be a signal's handler.
  template <typename FunctionAt>
  void resume(Ip to, FunctionAt function_at) {
    if (frames_ == nullptr) return;
    Frame& top = frames_->back();
    if (frames_->size() > 1 && top.return_to == to.value) return frames_->pop_back();
    const uint64_t function = function_at(to);
    if (function == 0 || function == top.function) return;
    if (top.interrupted == 0) {
      top.interrupted = top.function;
    } else if (top.interrupted == function) {
      top.interrupted = 0;
    }
    top.function = function;
  }
  /// Flow was lost: nothing is known of the depth.
  void lose() {
    if (frames_ != nullptr) frames_->assign(1, {});
  }

 private:
  static constexpr size_t kMaxDepth = 4096, kMaxSearch = 256;
  struct Frame {
    uint64_t return_to = 0, function = 0;
    uint64_t interrupted = 0;  ///< the function before a signal's handler
  };
  /// Returns index + 1 of the innermost frame that fits, 0 if none does.
  template <typename Fits>
  [[nodiscard]] size_t innermost(Fits fits) const {
    const size_t least = frames_->size() - std::min(frames_->size(), kMaxSearch);
    for (size_t i = frames_->size(); i > least; --i) {
      if (fits((*frames_)[i - 1])) return i;
    }
    return 0;
  }
  /// Ends the calls inside the innermost call of an open function. Returns false if it is not open.
  bool go_back(uint64_t function) {
    const size_t open = innermost([function](const Frame& frame) { return frame.function == function || frame.interrupted == function; });
    if (open == 0) return false;
    frames_->resize(open);
    frames_->back().function = function;
    return true;
  }
  std::unordered_map<int32_t, std::vector<Frame>> stacks_;  ///< the first frame of each is the function that no call was seen of
  std::vector<Frame>* frames_ = nullptr;
};

}  // namespace ptd::cli
