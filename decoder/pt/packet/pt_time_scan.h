// Pre-reads the timing packets of a segment, for a flow that needs their bounds.
#pragma once

#include <vector>

#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"

namespace ptd::pt {

/// A timing packet that moved the clock, and the bounds of its moment.
struct TimeBound {
  uint64_t offset_bytes = 0;
  Tsc earliest, latest;
};

/// All points of a segment. For tests and listings: takes 24 bytes a point; the flow uses TimeCursor.
[[nodiscard]] std::vector<TimeBound> scan_times(Bytes segment, PtClock start);

/// Runs over a segment's timing packets ahead of the flow. Asked with offsets that never go back; each packet is read at most twice, and
/// nothing is allocated. Past bytes that are no packet it goes on at the next PSB, with the clock's configuration and calibration only. The
/// bytes must outlive it.
class TimeCursor {
 public:
  TimeCursor(Bytes segment, const PtClock& start) : TimeCursor(segment, start, 0) {}
  TimeCursor(Bytes segment, const PtClock& start, uint64_t offset_bytes);

  /// What is known at `offset`: lower bound by the last point before it (the start clock's bound, or 0, where there is none).
  [[nodiscard]] Tsc earliest_before(uint64_t offset_bytes);
  /// Upper bound by the points at or after `offset`: that of the first one that has one. kTscMax where none has.
  [[nodiscard]] Tsc latest_after(uint64_t offset_bytes);

 private:
  struct Run {
    PacketReader reader;
    PtClock clock;
    bool next(Bytes bytes, TimeBound& point);
  };
  void advance(uint64_t offset_bytes);

  Bytes bytes_;
  Run run_;          ///< stands behind point_
  TimeBound point_;  ///< the first at or after the last offset asked for
  bool has_point_ = false;
  Tsc before_;
  Run ahead_;        ///< looks for a bound where point_ has none
  TimeBound bound_;  ///< the first bounded point behind point_
  bool has_bound_ = false, bound_valid_ = false;
};

}  // namespace ptd::pt
