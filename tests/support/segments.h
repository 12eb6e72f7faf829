// Cuts a raw Intel PT stream into segments at its PSBs, for tests that hold a trace in memory.
#pragma once

#include <vector>

#include "ptdecode/aux_segment.h"

namespace ptd::test {

/// Offsets of every PSB: 16 bytes 02 82 repeated; of a longer run, the last alignment that something else follows.
[[nodiscard]] std::vector<uint64_t> psb_offsets(Bytes stream);
/// One segment for each PSB. The segments view `stream`; cpu is `cpu`, tail_bytes reaches to the end of the next PSB+.
[[nodiscard]] std::vector<AuxSegment> cut_segments(Bytes stream, int32_t cpu = 0);

}  // namespace ptd::test
