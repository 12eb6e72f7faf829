// Two decoders over one segment: do they give the same? For tests only.
#pragma once

#include <string>

#include "ptdecode/flow_decoder.h"

namespace ptd::test {

/// Everything one segment gave, with indices into all of its blocks.
struct SegmentOutput {
  Batch all;
  void add(const Batch& batch);
};

/// Decodes `segment` with both, in batches of `batch_blocks`, the other in those of `other_batch_blocks` if that is not 0. Empty if
/// blocks (places, bytes, flags), marks, events and gaps are the same; else the first difference.
[[nodiscard]] std::string compare_decoders(FlowDecoder& one, FlowDecoder& other, const AuxSegment& segment, size_t batch_blocks,
                                           size_t other_batch_blocks = 0);

}  // namespace ptd::test
