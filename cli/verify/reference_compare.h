// Comparison of two decodes of one stream, segment by segment: right, flagged, lost, silently wrong.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd::cli {

/// Instructions of the reference, by what the other decode made of them.
struct ComparedCounts {
  uint64_t reference = 0;         ///< instructions of the reference
  uint64_t right = 0;             ///< equal in address and bytes
  uint64_t right_flagged = 0;     ///< of those: marked ambiguous, suspect or assumed all the same
  uint64_t wrong_flagged = 0;     ///< differ, and the other decode marked them
  uint64_t lost_in_gap = 0;       ///< missing where the other decode tells of a gap
  uint64_t silently_wrong = 0;    ///< differ or missing without mark or gap
  uint64_t invented = 0;          ///< instructions of the other decode that the reference does not have
  uint64_t invented_flagged = 0;  ///< of those: marked
  uint64_t int3_reference = 0, int3_other = 0;
  uint64_t first_silent_offset_bytes = 0;  ///< stream offset of the first segment with a silent difference
  bool has_silent = false;
};

/// Decodes `stream` with both recordings (of the same file) and compares.
[[nodiscard]] Result<ComparedCounts> compare_stream(const Recording& reference, const Recording& other, uint32_t stream,
                                                    const std::function<void(uint64_t bytes)>& progress);

}  // namespace ptd::cli
