// Names of FrameKind, for JSON and tables.
#pragma once

#include "ptdecode/call_tree.h"

namespace ptd {

/// The enumerator's name. Static.
[[nodiscard]] constexpr const char* name_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::call:
      return "call";
    case FrameKind::tail:
      return "tail";
    case FrameKind::interrupt:
      return "interrupt";
    case FrameKind::syscall:
      return "syscall";
    case FrameKind::root:
      break;
  }
  return "root";
}

}  // namespace ptd
