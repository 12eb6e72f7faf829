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
  struct IdByte {
    uint8_t id = 0;
    uint64_t offset_bytes = 0;
    bool is_late = false;  ///< the byte after it still has the old id
  };
  /// An id byte, which may repeat the id. The bytes that have the old id have been passed.
  virtual void on_id(const IdByte& /*id*/) {}
  /// See split_frames().
  virtual void on_barrier(uint64_t offset_bytes) = 0;
  /// Bytes from `offset_bytes` on are omitted, because they are not whole frames. The bytes after them have no id until an id byte gives
  /// one.
  virtual void on_loss(uint64_t offset_bytes) = 0;
};

FrameCounts read_frames(Bytes buffer, FrameFormat format, FrameReader& reader);

}  // namespace ptd::arm
