// Finds OVF packets without a decoder.
#pragma once

#include "ptdecode/pt/config.h"
#include "ptdecode/types.h"

namespace ptd::pt {

/// Returns whether the last packet before the end of `bytes` may be an OVF, apart from PADs.
[[nodiscard]] bool may_end_in_overflow(Bytes bytes);
/// Returns whether it is one. `packets` begin with a whole packet.
[[nodiscard]] bool ends_in_overflow(Bytes packets);
/// Returns whether there is an OVF in `packets`, or damage that may hide one.
[[nodiscard]] bool has_overflow(Bytes packets, const Config& config);

}  // namespace ptd::pt
