// CoreSight formatter frames: several trace sources in one buffer, taken apart by their ids.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd::arm {

/// How a buffer came to be ([CoreSight] "Formatter and flush").
enum class FrameFormat : uint8_t {
  aligned,  ///< whole frames of 16 bytes, as ETB, ETF and ETR keep them; four frame syncs in a row are a barrier
  synced,   ///< a stream of a trace port: frame syncs (7fffffff) between frames, halfword syncs (7fff) inside
};

/// Bytes of one source that stood side by side in one frame.
struct FrameRun {
  uint8_t id = 0;
  uint64_t offset_bytes = 0;  ///< of the first of them, in the buffer
  Bytes bytes;                ///< valid during the call
};

/// What taking a buffer apart found.
struct FrameCounts {
  uint64_t frames = 0;
  uint64_t barriers = 0;       ///< runs of frame syncs: what follows does not join what was before
  uint64_t skipped_bytes = 0;  ///< before the first sync, or less than a frame at the end
};

/// Takes `buffer` apart: `on_run` gets what each source wrote, in order (id 0, the formatter's own padding, is left out);
/// `on_barrier` is called where sources do not join. A source's run ends at a frame's end and where the id changes. Any bytes are frames:
/// there is no failure, only ids that no source has.
PTD_API FrameCounts split_frames(Bytes buffer, FrameFormat format, const std::function<void(const FrameRun&)>& on_run,
                         const std::function<void(uint64_t offset_bytes)>& on_barrier);

}  // namespace ptd::arm
