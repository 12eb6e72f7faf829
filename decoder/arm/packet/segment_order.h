// Segments of Arm trace that are not in the order in which they were written. Private to the project.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/types.h"

namespace ptd::arm {

/// Bytes [first, last) of a trace that are decoded one after the other.
struct TracePiece {
  uint64_t first = 0, last = 0;
};

/// Where the timestamps of a trace go back or repeat, and how its pieces follow each other in order of their timestamps.
struct SegmentOrder {
  std::vector<TracePiece> pieces;   ///< empty: the bytes stay as they are
  uint64_t places = 0;              ///< at which timestamps go back or repeat; without pieces, at most one
  uint64_t first_offset_bytes = 0;  ///< of the first of them
  uint64_t copies = 0;              ///< segments that are not among the pieces because they repeat another one
};

/// Finds the order of `bytes`, trace of ETMv4 or ETE without a break: segments may be swapped or doubled, and a ring may not be unrolled.
///
/// Timestamps never go back. Where they do at an A-Sync, the segments are out of order if they do not overlap in time and no timestamp goes
/// back inside one of them. Where they go back once, at an A-Sync or inside a segment, and all after that is older than all before it, the
/// clock was set back, or it is a ring that was not unrolled: `places` is 1, and no byte moves. Nothing is out of order if something else
/// explains what is found:
/// - one wrong byte of a timestamp: see check_timestamps();
/// - another clock, as that of a guest with an offset: timestamps go back by more than 2^32 ticks or in other places than at A-Syncs. In a
///   trace with few timestamps they may also alternate between two clocks at A-Syncs.
///
/// Limitations: a timestamp may come up to 256 bytes after its A-Sync; segments without any stay with the one before. A swap in a trace
/// with one timestamp a segment may be taken for one of these.
[[nodiscard]] SegmentOrder order_of_segments(Bytes bytes, const TraceConfig& config);

}  // namespace ptd::arm
