// Checks a segment: timestamps, and context packets that the switch records of the cpu contradict. Private to the project.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decoder/arm/options.h"
#include "decoder/arm/packet/timestamps.h"
#include "ptdecode/arm/config.h"
#include "ptdecode/aux_segment.h"
#include "ptdecode/context_track.h"

namespace ptd::arm {

/// A part of a segment whose context packets name a wrong thread.
struct WrongContext {
  uint64_t from_bytes = 0, to_bytes = 0;  ///< offsets of packets; without the last
  int32_t tid = -1;                       ///< the thread of the switch records; -1: one of several
  int32_t named_tid = -1;                 ///< the thread of the packets
  Interval time;
};

/// The switch records of all cpus.
struct KnownSwitches {
  const ContextTrack& contexts;
  std::span<const Interval> lost;  ///< windows in which records may be missing, disjoint, in order
};

/// What is wrong with the packets of a segment of ETMv4 or ETE.
struct CheckedSegment {
  AuxSegment segment;  ///< with the bounds of its time that remain
  TimestampCheck timestamps;
  std::vector<WrongContext> wrong_contexts;  ///< in order
  uint64_t steps = 0;                        ///< switches and windows that were compared, for tests of the cost
};

/// Checks a segment's timestamps and contexts.
///
/// A *run* is flow without a break that has one context id. Linux writes the id in __switch_to, between the records of the switch, so a run
/// ends a little later than the records say, or begins a little earlier. It is wrong, or a part of it:
/// - if no record names its thread at any time of it;
/// - if a thread that records name never comes in it;
/// - if it goes on after a switch, up to a packet that also changes the exception level, or to another thread than the one that came: the
///   packet of the switch is missing. Likewise if it begins before a switch.
/// Nothing is judged where records may be missing, before the first and after the last, where the runs beside it do not fit the records
/// either, and in a segment of which more than a quarter does not, or no run does from its start to its end: the ids may be numbers of
/// another name space, or a guest's. A segment with more pieces or switches than a trace unit and a kernel write is not judged.
[[nodiscard]] CheckedSegment check_segment(const AuxSegment& segment, const TraceConfig& config, const FollowOptions& options,
                                           const KnownSwitches& known);

}  // namespace ptd::arm
