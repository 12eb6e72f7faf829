// Two decoders over one segment: do they give the same? For tests only.
#pragma once

#include <string>

#include "decoder/pt/decoder.h"

namespace ptd::test {

/// Everything one segment gave, with indices into all of its blocks.
struct SegmentOutput {
  Batch all;
  void add(const Batch& batch);
};

/// Decodes `segment` with both, in batches of `capacity_blocks`. Empty if blocks (places, bytes, flags), marks, events and gaps are the
/// same; else the first difference.
[[nodiscard]] std::string compare_decoders(pt::Decoder& one, pt::Decoder& other, const AuxSegment& segment, size_t capacity_blocks);

}  // namespace ptd::test
