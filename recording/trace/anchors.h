// Anchors: points in the traces that order text pokes independently of the clock.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/types.h"

namespace ptd {

/// A point in one stream that shows kernel patching, found by a scan of packets before any flow is decoded.
struct AnchorPoint {
  uint64_t stream_offset_bytes = 0;  ///< of the TIP
  Interval time;                     ///< bounds of its moment
  bool poke = false;                 ///< perf_event_text_poke_output (the record is being written); else do_sync_core
};

/// The anchor points of one per-cpu stream, in order.
struct AnchorStream {
  int32_t cpu = -1;
  std::vector<AnchorPoint> points;
  /// A part of the trace was lost, and perhaps rounds with it: the first time, and the stream offset from which on nothing is counted.
  TimeNs lost = kTimeMax;
  uint64_t end_offset_bytes = ~uint64_t{0};
};

/// The time and cpu of a TEXT_POKE record.
struct PokeStamp {
  TimeNs time;
  int32_t cpu = -1;
};

/// For each stream the spans between its synchronisation points with the time that a fetch in that span may have at most:
/// spans[i] holds from spans[i].stream_offset_bytes to that of spans[i + 1]. Empty if the streams cannot be matched.
///
/// The kernel runs do_sync_core on every cpu, once a round, and a round ends before the next begins: the k-th on one cpu is the k-th on
/// all. A record is written by the poking cpu after the round that follows the INT3, before the one that follows the new bytes
/// (kernel/alternative.c, "text_poke_bp_batch"). So a cpu that has passed as many rounds as the poker had when it wrote the record
/// runs the new instruction (or traps), a cpu that has passed fewer runs the old one (or traps).
/// Where a part of a trace is lost, rounds may be lost with it: nothing is counted from the first loss in any stream on.
/// A record whose place is not in the traces (its cpu was not traced just then) is left out; the bounds that the others give stay true.
/// Invariant: anchors only narrow intervals. Rounds that contradict the times, cpus whose counts cannot be reconciled, or many records
/// without a position give no spans.
[[nodiscard]] std::vector<std::vector<pt::SyncPoint>> match_anchors(std::vector<AnchorStream> streams, std::vector<PokeStamp> pokes);

/// Scans one segment for anchor points; appends them to `stream`. Keeps the clock only in segments that may hold a TIP to one of the
/// entries, and only until the points found have their times.
void scan_anchors(const AuxSegment& segment, const pt::Config& config, uint64_t slack_ns, const std::vector<Ip>& sync_entries,
                  const std::vector<Ip>& poke_entries, AnchorStream& stream);

}  // namespace ptd
