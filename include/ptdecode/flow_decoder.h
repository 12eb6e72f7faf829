// FlowDecoder: what every decoder of a trace protocol has in common.
#pragma once

#include "ptdecode/aux_segment.h"
#include "ptdecode/export.h"
#include "ptdecode/flow.h"

namespace ptd {

/// Turns segments into batches: pt::Decoder for Intel PT, arm::Decoder for CoreSight. Not thread-safe; one per worker.
class PTD_API FlowDecoder {
 public:
  FlowDecoder() = default;
  virtual ~FlowDecoder() = default;
  FlowDecoder(const FlowDecoder&) = delete;
  FlowDecoder& operator=(const FlowDecoder&) = delete;

  /// Starts a segment; drops what was left of the previous one.
  virtual void begin(const AuxSegment& segment) = 0;
  /// Appends to a cleared batch up to about its capacity. Returns false when the segment is done (the batch may still hold output).
  virtual bool next(Batch& batch) = 0;
  /// Owner of the nodes that the batches name; grows only.
  [[nodiscard]] virtual const BlockTable& blocks() const = 0;

 protected:
  FlowDecoder(FlowDecoder&&) noexcept = default;
  FlowDecoder& operator=(FlowDecoder&&) noexcept = default;
};

}  // namespace ptd
