// WindowEdge: tells where the flow of a thread passes from one window of trace to another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace ptd::replay {

/// Follows the flow of one thread, in either direction. Between two windows of a stream (snapshots, AUX samples), the threads whose flow
/// before or after is of that stream may have run without trace.
class WindowEdge {
 public:
  /// The edge between two windows of a stream is passed. Returns whether the thread's last flow was of this stream: it ends there.
  bool pass(uint32_t stream) {
    if (!at_) return false;
    const bool is_own = *at_ == stream;
    if (is_own)
      at_.reset();
    else if (!contains(stream))
      passed_.push_back(stream);
    return is_own;
  }
  /// The thread's flow goes on in a stream. Returns whether an edge of that stream was passed since its last flow. Flow after no other, or
  /// after an edge that pass() reported, passes none.
  bool reach(uint32_t stream) {
    const bool is_passed = at_ && !passed_.empty() && contains(stream);
    passed_.clear();
    at_ = stream;
    return is_passed;
  }

 private:
  [[nodiscard]] bool contains(uint32_t stream) const { return std::find(passed_.begin(), passed_.end(), stream) != passed_.end(); }
  std::optional<uint32_t> at_;    // of the thread's last flow
  std::vector<uint32_t> passed_;  // streams of which an edge was passed since
};

}  // namespace ptd::replay
