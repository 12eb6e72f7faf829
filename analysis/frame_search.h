// How stacks of calls are searched: all that follow calls must agree about it.
#pragma once

#include <cstddef>

#include "analysis/call_flow.h"
#include "ptdecode/call_tree.h"

namespace ptd {

/// GroupBuilder::kMostSteps. A search for a landing pad always looks at so many frames: those of a group.
inline constexpr uint64_t kMostGroupSteps = 1U << 13;

/// Returns whether a direct CALL in a function, to `to` in the same function, may be one that only fills the return stack: it skips a few
/// bytes.
[[nodiscard]] inline bool fills_return_stack(Ip return_to, Ip to) {
  constexpr uint64_t kMostSkipped = 16;
  return return_to <= to && to.value - return_to.value <= kMostSkipped;
}

/// Returns whether a far return leaves a frame of this kind.
[[nodiscard]] inline bool is_boundary(FrameKind kind) { return kind == FrameKind::interrupt || kind == FrameKind::syscall; }

/// Returns whether a far return at the instruction before `next` goes from user code to user code, as a program's LRETQ or IRETQ does. It
/// ends no handler of the kernel: it returns from an open call, or is a jump. `to`: 0 if that is not known.
[[nodiscard]] inline bool stays_in_user_code(Ip next, Ip to) { return next.value != 0 && !is_kernel_half(next) && !is_kernel_half(to); }

/// Returns whether an exception that leaves a call goes on at `to`. `landing`: FlowStep::landing of the call.
[[nodiscard]] inline bool lands_at(Ip return_to, int32_t landing, Ip to) {
  return landing > kInSlot && landing != 0 && return_to + static_cast<uint64_t>(int64_t{landing} - 1) == to;
}

}  // namespace ptd
