// Names and classes of branches as `perf script` shows them.
#pragma once

#include <cstdint>
#include <string_view>

#include "ptdecode/flow.h"
#include "ptdecode/insn.h"

namespace ptd {

/// What a branch does to the stack of calls, and which --itrace letters show it.
enum class BranchRole : uint8_t { jump, call, ret };

/// A control transfer that was taken, or the begin or end of tracing.
struct BranchKind {
  std::string_view flags;  ///< "call", "jcc", "hw int", "tr end call", ...
  BranchRole role = BranchRole::jump;
  bool begin = false, end = false;  ///< tracing begins / ends here
  bool async = false;
};

/// Of a branch instruction that was taken. `ends_trace`: tracing stopped at its target.
[[nodiscard]] BranchKind kind_of(InsnClass cls, InsnDetail detail, bool ends_trace);
/// Of an async_branch.
[[nodiscard]] BranchKind kind_of(const Event& event);

}  // namespace ptd
