// One independently decodable piece of a hardware trace stream.
#pragma once

#include <cstdint>

#include "ptdecode/types.h"

namespace ptd {

/// Why a segment does not continue the bytes before it (PERF_AUX_FLAG_* of the AUX record at this point).
enum class AuxBreak : uint8_t {
  none,          ///< bytes are contiguous with the previous segment
  stream_start,  ///< first bytes of the stream
  truncated,     ///< PERF_AUX_FLAG_TRUNCATED: the ring was full, data was dropped
  partial,       ///< PERF_AUX_FLAG_PARTIAL: the record has gaps
  collision,     ///< PERF_AUX_FLAG_COLLISION
  snapshot,      ///< the next snapshot or AUX sample begins: time passed without trace
  missing,       ///< payload absent from the file
};

/// Correction of the TSC packet of a PSB+: the true time is `late_by` ticks earlier, modulo 2^56, or unknown.
struct TscCheck {
  bool use = true;
  uint64_t late_by = 0;
};

/// Bounds in ticks of the trace unit's clock.
struct TickRange {
  uint64_t first = 0, last = ~uint64_t{0};
};

/// A part of one stream, from one PSB up to (not including) the next: the unit of decoding and of parallelism.
/// Lifetime: the bytes belong to the creator of the segment and must outlive its decode.
struct AuxSegment {
  Bytes bytes;                       ///< from the first byte of a PSB; includes `tail_bytes` of the next segment
  uint64_t tail_bytes = 0;           ///< bytes at the end that belong to the next PSB+ and are read for its ip and time only
  uint64_t stream_offset_bytes = 0;  ///< offset of bytes[0] in the stream
  uint32_t stream = 0;               ///< index of the stream in its recording
  int32_t cpu = -1;                  ///< cpu of a per-cpu stream, else -1
  int32_t tid = -1;                  ///< tid of a per-thread stream, else -1
  Interval time;                     ///< bounds of all times in the segment, from neighbours and AUX records
  /// Of its own PSB+, and of the next one's in the tail. Arm: `tsc.use` is false if its first timestamp is wrong.
  TscCheck tsc, tail_tsc;
  /// When the bytes were written, by AUX records, if no packets tell. Chooses programs, and in Arm trace code; no output has it.
  Interval written;
  TickRange timestamps;  ///< Arm: of the timestamps in the segment, from neighbours and AUX records
  AuxBreak break_before = AuxBreak::none;
  bool after_overflow = false;  ///< Intel PT: the packets before its PSB end with an OVF, whose FUP may come after the PSB+
  bool break_after = false;     ///< the flow does not continue in the next segment (lost data, end of stream)
  /// In the last segment: why trace after it is missing. `snapshot`: tracing was paused, nothing is missing.
  AuxBreak lost_after = AuxBreak::none;
};

}  // namespace ptd
