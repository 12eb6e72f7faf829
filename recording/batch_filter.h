// BatchFilter: processes each batch on the decoding thread before the batch is queued.
#pragma once

#include <functional>
#include <memory>

#include "ptdecode/aux_segment.h"
#include "ptdecode/flow.h"
#include "ptdecode/recording.h"

namespace ptd {

/// Runs on the thread of one decoder and gets that decoder's batches only, in order within a segment. Other threads decode other segments,
/// so the result may depend only on the segment and its batches so far.
class BatchFilter {
 public:
  BatchFilter() = default;
  virtual ~BatchFilter() = default;
  BatchFilter(const BatchFilter&) = delete;
  BatchFilter& operator=(const BatchFilter&) = delete;
  virtual void apply(Batch& batch, const AuxSegment& segment) = 0;
};

/// Makes the filter of the decoder that fills the table.
using MakeBatchFilter = std::function<std::unique_ptr<BatchFilter>(const BlockTable&)>;

}  // namespace ptd
