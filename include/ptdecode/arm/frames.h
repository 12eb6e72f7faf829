// CoreSight formatter frames: splits a buffer of several trace sources by their ids.
#pragma once

#include <cstdint>
#include <functional>

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd::arm {

/// The layout of a buffer ([CoreSight] "Formatter and flush").
enum class FrameFormat : uint8_t {
  aligned,  ///< whole frames of 16 bytes, as stored by ETB, ETF and ETR; four frame syncs in a row are a barrier
  synced,   ///< a stream of a trace port: frame syncs (7fffffff) between frames, halfword syncs (7fff) inside
};

/// Contiguous bytes of one source in one frame.
struct FrameRun {
  uint8_t id = 0;
  uint64_t offset_bytes = 0;  ///< of the first of them, in the buffer
  Bytes bytes;                ///< valid during the call
};

/// The result of splitting a buffer.
struct FrameCounts {
  uint64_t frames = 0;
  uint64_t barriers = 0;       ///< runs of frame syncs: the trace is not continuous there
  uint64_t skipped_bytes = 0;  ///< before the first sync, between two syncs if they are not whole frames, or less than a frame at the end
};

/// Splits `buffer`: calls `on_run` with the bytes of each source, in order (id 0, the formatter's own padding, is omitted), and
/// `on_barrier` where the trace is not continuous. A run ends at the end of a frame and where the id changes. Any bytes are valid frames:
/// splitting cannot fail, but may give ids that no source has.
PTD_API FrameCounts split_frames(Bytes buffer, FrameFormat format, const std::function<void(const FrameRun&)>& on_run,
                                 const std::function<void(uint64_t offset_bytes)>& on_barrier);

}  // namespace ptd::arm
