// What a recording's segments decode to, segment by segment, in a form that can be compared.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd::test {

/// One segment's output. `flow` sums up every block (place, mode, instruction bytes), event and gap; times are left out.
struct SegmentDigest {
  uint64_t first_byte = 0;  ///< stream offset of its PSB
  uint64_t own_end = 0;     ///< stream offset of the first byte that is not its own
  uint64_t tail_end = 0;    ///< with the PSB+ of the next segment, which it reads as well
  uint64_t flow = 0, instructions = 0, gaps = 0;
  uint64_t uncertain = 0;  ///< instructions in blocks that are marked uncertain
};
/// A stream is that of a cpu, or of a thread if the recording follows threads.
using StreamKey = std::pair<int32_t, int32_t>;
[[nodiscard]] inline StreamKey stream_key(int32_t cpu, int32_t tid) { return {cpu, cpu >= 0 ? -1 : tid}; }
struct StreamDigest {
  int32_t cpu = -1, tid = -1;
  std::vector<SegmentDigest> segments;
  [[nodiscard]] StreamKey key() const { return stream_key(cpu, tid); }
};

/// Decodes up to `max_segments` of each stream, and looks up the name of every block's first instruction.
/// An error without a sentence goes into `findings`.
[[nodiscard]] std::vector<StreamDigest> digest(const Recording& recording, uint64_t max_segments, const std::string& what,
                                               std::vector<std::string>& findings);

/// Bytes [first, last) of a stream that a damage may have changed.
struct DamagedRange {
  uint64_t first = 0, last = 0;
};
/// Segments that touch no damaged byte must be as they were; the flow resumes at the next PSB. Trace is also evidence of when code was
/// patched, for other segments too: where it is gone, a segment that marks its choice as uncertain may differ. `stream` is null if the
/// stream is gone. A cut (`damage.last` == ~0) removes everything after it, so only what is before it is compared.
void expect_same_outside(const StreamDigest& base, const StreamDigest* got, DamagedRange damage, const std::string& what,
                         std::vector<std::string>& findings);

}  // namespace ptd::test
