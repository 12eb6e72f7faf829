// is_loss(): which breaks in a stream are lost trace.
#pragma once

#include "ptdecode/aux_segment.h"

namespace ptd {

/// Returns whether trace is lost at the break, rather than the stream begins or tracing paused there.
[[nodiscard]] constexpr bool is_loss(AuxBreak why) {
  return why != AuxBreak::none && why != AuxBreak::stream_start && why != AuxBreak::snapshot;
}

}  // namespace ptd
