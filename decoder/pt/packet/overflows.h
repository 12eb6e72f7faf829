// Finds OVF packets without a decoder.
#pragma once

#include "ptdecode/pt/config.h"
#include "ptdecode/types.h"

namespace ptd::pt {

/// Returns whether the last packet before the end of `bytes` may be an OVF, apart from PADs.
[[nodiscard]] bool may_end_in_overflow(Bytes bytes);
/// Returns whether it is one. `packets` begin with a whole packet.
[[nodiscard]] bool ends_in_overflow(Bytes packets);
/// Returns whether there may be an OVF in `bytes`: other packets may contain its bytes.
[[nodiscard]] bool may_overflow(Bytes bytes);
/// Returns whether there is an OVF in a segment, or bytes that are no packet and may hide one. `tail_bytes` as in AuxSegment.
[[nodiscard]] bool has_overflow(Bytes bytes, uint64_t tail_bytes, const Config& config);

}  // namespace ptd::pt
