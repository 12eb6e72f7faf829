// Pre-reads the timing packets of a segment, for a flow that needs their bounds.
#pragma once

#include <vector>

#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"

namespace ptd::pt {

/// A timing packet that changed the clock, and the bounds of its time.
struct TimeBound {
  uint64_t offset_bytes = 0;
  Tsc earliest, latest;
};

/// Returns all points of a segment, at 24 bytes each. For tests and listings; the flow uses TimeCursor.
[[nodiscard]] std::vector<TimeBound> scan_times(Bytes segment, PtClock start);

/// Pre-reads a segment's timing packets for the flow. Offsets in calls must not decrease; each packet is read at most twice, without
/// allocation. After invalid bytes it continues at the next PSB, keeping only the clock's configuration and calibration. The bytes must
/// outlive it.
class TimeCursor {
 public:
  TimeCursor(Bytes segment, const PtClock& start) : TimeCursor(segment, start, 0) {}
  TimeCursor(Bytes segment, const PtClock& start, uint64_t offset_bytes);

  /// Returns the lower bound at `offset` from the last point before it (if there is none, the start clock's bound or 0).
  [[nodiscard]] Tsc earliest_before(uint64_t offset_bytes);
  /// Returns the upper bound from the first point at or after `offset` that has one; kTscMax if none has.
  [[nodiscard]] Tsc latest_after(uint64_t offset_bytes);

 private:
  struct Run {
    PacketReader reader;
    PtClock clock;
    bool next(Bytes bytes, TimeBound& point);
  };
  void advance(uint64_t offset_bytes);

  Bytes bytes_;
  Run run_;          ///< positioned after point_
  TimeBound point_;  ///< the first point at or after the last requested offset
  bool has_point_ = false;
  Tsc before_;
  Run ahead_;        ///< searches for a bound if point_ has none
  TimeBound bound_;  ///< the first bounded point after point_
  bool has_bound_ = false, bound_valid_ = false;
};

}  // namespace ptd::pt
