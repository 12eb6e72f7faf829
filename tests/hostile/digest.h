// Digests of a recording's decoded segments, in a form that can be compared.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd::test {

/// One segment's output. `flow` is a sum of every block (address, mode, instruction bytes), event and gap; times are omitted.
struct SegmentDigest {
  uint64_t first_byte = 0;  ///< stream offset of its PSB
  uint64_t own_end = 0;     ///< stream offset of the first byte after it
  uint64_t tail_end = 0;    ///< with the PSB+ of the next segment, which is read with it
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
/// An error without a message is added to `findings`.
[[nodiscard]] std::vector<StreamDigest> digest(const Recording& recording, uint64_t max_segments, const std::string& what,
                                               std::vector<std::string>& findings);

/// Bytes [first, last) of a stream that damage may have changed.
struct DamagedRange {
  uint64_t first = 0, last = 0;
};
/// Segments without damaged bytes must be unchanged; the flow resumes at the next PSB. Trace is also evidence of when code was patched, for
/// other segments too: if it is missing, a segment that marks its choice as uncertain may differ. `stream` is null if the stream is
/// missing. A cut (`damage.last` == ~0) removes everything after it, so only segments before it are checked.
void expect_same_outside(const StreamDigest& base, const StreamDigest* got, DamagedRange damage, const std::string& what,
                         std::vector<std::string>& findings);

}  // namespace ptd::test
