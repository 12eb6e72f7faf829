// Compares the output of two decoders over one segment. For tests only.
#pragma once

#include <string>

#include "ptdecode/flow_decoder.h"

namespace ptd::test {

/// The output of one segment, with indices into all of its blocks.
struct SegmentOutput {
  Batch all;
  void add(const Batch& batch);
};

/// Decodes `segment` with both: `one` in batches of `batch_blocks`, `other` in batches of `other_batch_blocks` if that is not 0. Returns ""
/// if blocks (places, bytes, flags), marks, events and gaps are equal; else the first difference.
[[nodiscard]] std::string compare_decoders(FlowDecoder& one, FlowDecoder& other, const AuxSegment& segment, size_t batch_blocks,
                                           size_t other_batch_blocks = 0);

}  // namespace ptd::test
