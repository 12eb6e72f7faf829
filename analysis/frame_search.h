// How stacks of calls are searched: all that follow calls must agree about it.
#pragma once

#include <cstddef>

#include "ptdecode/call_tree.h"

namespace ptd {

/// Returns whether a far return leaves a frame of this kind.
[[nodiscard]] inline bool is_boundary(FrameKind kind) { return kind == FrameKind::interrupt || kind == FrameKind::syscall; }

/// Returns the index + 1 of the innermost frame that fits, or 0 if none of the last 256 frames does.
template <typename Frames, typename Fits>
size_t innermost(const Frames& frames, Fits fits) {
  constexpr size_t kMostSearched = 256;
  const size_t least = frames.size() > kMostSearched ? frames.size() - kMostSearched : 0;
  for (size_t i = frames.size(); i > least; --i) {
    if (fits(frames[i - 1])) return i;
  }
  return 0;
}

}  // namespace ptd
