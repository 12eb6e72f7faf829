// Words for calls, as the JSON of `ptdecode script` and the C API have them. All are static.
#pragma once

#include "ptdecode/call_tree.h"

namespace ptd {

/// "call", "tail", "interrupt", "syscall", "inlined" or "root".
[[nodiscard]] constexpr const char* name(FrameKind kind) {
  switch (kind) {
    case FrameKind::call:
      return "call";
    case FrameKind::tail:
      return "tail";
    case FrameKind::interrupt:
      return "interrupt";
    case FrameKind::syscall:
      return "syscall";
    case FrameKind::inlined:
      return "inlined";
    case FrameKind::root:
      break;
  }
  return "root";
}

/// Why a thread did not run up to `step`, which is CallStepKind::on: "lost", "off_cpu" or "untraced".
[[nodiscard]] constexpr const char* pause_name(const CallStep& step) {
  if (step.lost_ns != 0) return "lost";
  return step.off_cpu_ns >= step.untraced_ns ? "off_cpu" : "untraced";
}

}  // namespace ptd
