// is_uncounted_rounds(): which events report a loop or recursion without packets.
#pragma once

#include "ptdecode/flow.h"

namespace ptd {

/// Returns whether the flow was in a loop or recursion without packets at `event`, whose rounds are not counted.
[[nodiscard]] inline bool is_uncounted_rounds(const Event& event) { return event.kind == EventKind::skipped && event.from == event.to; }

}  // namespace ptd
