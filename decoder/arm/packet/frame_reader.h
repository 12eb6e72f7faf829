// Everything in CoreSight formatter frames, including what the formatter itself writes. split_frames() gives only the sources' bytes.
#pragma once

#include "ptdecode/arm/frames.h"

namespace ptd::arm {

inline constexpr size_t kFrameBytes = 16;  ///< without syncs

/// Receives the contents of frames, in order.
class FrameReader {
 public:
  FrameReader() = default;
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;
  virtual ~FrameReader() = default;
  /// Bytes of one id, which an id byte gave before; id 0: the formatter's padding.
  virtual void on_run(const FrameRun& run) = 0;
  /// An id byte, which may repeat the id. The runs before it have been passed.
  virtual void on_id(uint8_t /*id*/, uint64_t /*offset_bytes*/) {}
  /// See split_frames().
  virtual void on_barrier(uint64_t offset_bytes) = 0;
  /// Bytes from `offset_bytes` on are omitted, because they are not whole frames. The bytes after them have no id until an id byte gives one.
  virtual void on_loss(uint64_t offset_bytes) = 0;
};

FrameCounts read_frames(Bytes buffer, FrameFormat format, FrameReader& reader);

}  // namespace ptd::arm
