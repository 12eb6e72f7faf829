// Zeroed trace: finds runs of zero bytes that are longer than any run of PAD packets from a processor.
#pragma once

#include <cstdint>

#include "ptdecode/pt/config.h"
#include "ptdecode/types.h"

namespace ptd::pt {

inline constexpr uint64_t kMostPacketBytes = 16;  ///< PSB

/// Zero bytes [first, last) of a segment. A packet that reaches into them may have lost its end, and the bytes after them may begin inside
/// a packet.
struct ZeroRun {
  uint64_t first = 0, last = 0;
  /// Returns whether a packet at [from, until) reaches into the run. until == from: the bytes at `from` are not a packet, possibly because
  /// of the run.
  [[nodiscard]] bool cuts(uint64_t from, uint64_t until) const {
    return first != last && (until != from ? until > first : first - from < kMostPacketBytes);
  }
};

/// Processors align packets with PADs: captures contain runs of at most 21 bytes, or 9 while tracing is on. A run of this length means that
/// the trace was overwritten or never written, also while tracing is off: what follows does not tell how long it stayed off.
inline constexpr uint64_t kLeastZeroRun = 64;

/// Returns the first run of at least kLeastZeroRun zero bytes that begins in [from, end), cut off at `end`; {end, end} if there is none.
[[nodiscard]] ZeroRun find_zero_run(Bytes bytes, uint64_t from, uint64_t end);

/// Returns an offset in [from, end] at which a packet certainly begins, whatever part of a packet is at `from`: reading from any byte at
/// which the next packet may begin leads to it. Returns `end` if there is none nearby.
[[nodiscard]] uint64_t find_packet(Bytes bytes, uint64_t from, uint64_t end, const Errata& errata);

}  // namespace ptd::pt
