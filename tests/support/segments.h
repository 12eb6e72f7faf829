// Splits a raw Intel PT stream into segments at its PSBs, for tests with a trace in memory.
#pragma once

#include <vector>

#include "ptdecode/aux_segment.h"

namespace ptd::test {

/// Returns the offset of every PSB: 16 bytes of 02 82 repeated; of a longer run, the last 16 bytes.
[[nodiscard]] std::vector<uint64_t> psb_offsets(Bytes stream);
/// Returns one segment per PSB. The segments view `stream`; tail_bytes extends to the end of the next PSB+.
[[nodiscard]] std::vector<AuxSegment> cut_segments(Bytes stream, int32_t cpu = 0);

}  // namespace ptd::test
