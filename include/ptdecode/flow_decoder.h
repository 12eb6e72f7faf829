// FlowDecoder: the common interface of the decoders.
#pragma once

#include <cstddef>

#include "ptdecode/aux_segment.h"
#include "ptdecode/export.h"
#include "ptdecode/flow.h"

namespace ptd {

inline constexpr size_t kDefaultBatchBlocks = 4096;

/// Decodes segments into batches: pt::Decoder for Intel PT, arm::Decoder for CoreSight. Not thread-safe: use one per thread.
/// Recording::make_decoder() makes the decoder of a stream, which the recording must outlive. blocks() is valid as long as the decoder.
class PTD_API FlowDecoder {
 public:
  FlowDecoder() = default;
  virtual ~FlowDecoder() = default;
  FlowDecoder(const FlowDecoder&) = delete;
  FlowDecoder& operator=(const FlowDecoder&) = delete;

  /// Starts a segment, and drops the rest of the previous one. The bytes must stay valid until the segment is done.
  virtual void begin(const AuxSegment& segment) = 0;
  /// Appends about `batch_blocks` blocks to a cleared batch, with their marks, events and gaps. Returns false when the segment is done (the
  /// batch may still hold output). The flow does not depend on `batch_blocks`.
  bool next(Batch& batch, size_t batch_blocks = kDefaultBatchBlocks) { return fill(batch, batch_blocks); }
  /// Returns the table of the nodes in the batches. It only grows.
  [[nodiscard]] virtual const BlockTable& blocks() const = 0;

 protected:
  FlowDecoder(FlowDecoder&&) noexcept = default;
  FlowDecoder& operator=(FlowDecoder&&) noexcept = default;

 private:
  virtual bool fill(Batch& batch, size_t batch_blocks) = 0;
};

}  // namespace ptd
