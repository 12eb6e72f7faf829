// Arithmetic of perf rings: monotonic offsets over a circular buffer. Makes no system calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ptdecode/types.h"

namespace ptd::perfio {

/// Part of a ring as a stream: [begin, end) in bytes since the ring was created, and the memory of these bytes, oldest first. `second` is
/// empty unless the part wraps. Views the ring: valid until the part is released or overwritten.
struct RingPart {
  uint64_t begin = 0, end = 0;
  Bytes first, second;
  uint64_t lost_bytes = 0;  ///< bytes before `begin` that were overwritten before they were read

  [[nodiscard]] uint64_t size_bytes() const { return end - begin; }
};

/// Returns [begin, end) of a ring of any size. end - begin is at most the ring's size.
[[nodiscard]] inline RingPart ring_part(Bytes ring, uint64_t begin, uint64_t end) {
  RingPart part{begin, end, {}, {}, 0};
  if (ring.empty() || begin == end) return part;
  const auto at = static_cast<size_t>(begin % ring.size());
  const auto size = static_cast<size_t>(end - begin);
  part.first = ring.subspan(at, std::min(size, ring.size() - at));
  part.second = ring.first(size - part.first.size());
  return part;
}

/// Returns the data between `tail` (read so far) and `head` (written so far). If the head is more than a ring's length ahead, the oldest
/// bytes are overwritten. A head before the tail (a corrupted control page) means no data.
[[nodiscard]] inline RingPart pending_part(Bytes ring, uint64_t tail, uint64_t head) {
  const auto ahead = static_cast<int64_t>(head - tail);
  if (ahead <= 0) return ring_part(ring, tail, tail);
  const uint64_t lost = static_cast<uint64_t>(ahead) > ring.size() ? static_cast<uint64_t>(ahead) - ring.size() : 0;
  RingPart part = ring_part(ring, tail + lost, head);
  part.lost_bytes = lost;
  return part;
}

/// Returns the content of a ring in overwrite mode while its writer is stopped, oldest first. In some PMUs `head` grows (Arm's TMC); in
/// others it is the position in memory (Intel PT, [Linux] arch/x86/events/intel/pt.c, pt_event_stop()). Then nonzero bytes after it show
/// that the writer has wrapped. Zeros there were either never written or, for Intel PT, are PAD packets, so nothing is lost with them.
[[nodiscard]] inline RingPart overwritten_part(Bytes ring, uint64_t head) {
  if (ring.empty()) return {};
  if (head > ring.size()) return ring_part(ring, head - ring.size(), head);
  const Bytes rest = ring.subspan(static_cast<size_t>(head));
  const bool around = std::any_of(rest.begin(), rest.end(), [](std::byte byte) { return byte != std::byte{0}; });
  return around ? ring_part(ring, head, head + ring.size()) : ring_part(ring, 0, head);
}

}  // namespace ptd::perfio
