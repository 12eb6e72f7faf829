// Whether packets end with an OVF.
#pragma once

#include "ptdecode/types.h"

namespace ptd::pt {

/// Returns whether the last packet before the end of `bytes` may be an OVF, apart from PADs.
[[nodiscard]] bool may_end_in_overflow(Bytes bytes);
/// Returns whether it is one. `packets` begin with a whole packet.
[[nodiscard]] bool ends_in_overflow(Bytes packets);

}  // namespace ptd::pt
