// The number of segments that a fuzz target decodes.
#pragma once

#include "ptdecode/recording.h"

namespace ptd::test {

/// Returns where the fourth segment begins: three are decoded.
inline uint64_t third_segment_end(const Recording& recording, uint32_t stream) {
  const std::vector<uint64_t> starts = recording.segment_starts(stream);
  return starts.size() > 3 ? starts[3] : Recording::kStreamEnd;
}

}  // namespace ptd::test
