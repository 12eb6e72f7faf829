// Places the payloads of AUXTRACE records in their stream by offset. Private to recording.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

inline constexpr uint64_t kMaxPaddingBytes = 7;  ///< of a payload: PERF_AUXTRACE_RECORD_ALIGNMENT - 1

/// Contiguous bytes of a stream. The bytes belong to the recording's reader or to the stream's owner.
struct AuxChunk {
  uint64_t offset_bytes = 0;  ///< stream offset of the first byte
  Bytes bytes;

  [[nodiscard]] uint64_t end() const { return offset_bytes + bytes.size(); }
};

/// The payload of an AUXTRACE record.
struct AuxPayload {
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;  ///< of the record: `bytes` may be shorter
  Bytes bytes;
  uint32_t ring = 0;  ///< offsets of different rings are unrelated
};

/// Payloads of a stream, each byte once. Rings follow each other in order of their first payload; only the first one's stream offsets are
/// recorded offsets.
struct PlacedPayloads {
  struct Range {
    uint64_t first = 0, last = 0;  ///< [first, last)
  };
  std::vector<AuxChunk> chunks;                   ///< sorted and disjoint
  std::vector<uint64_t> breaks;                   ///< stream offsets of the first bytes of later rings
  std::vector<Range> conflicts;                   ///< given twice with different bytes, so in no chunk; sorted and disjoint
  uint64_t announced_end_bytes = 0;               ///< the end that the records of the first ring name
  uint64_t doubled_bytes = 0, first_doubled = 0;  ///< bytes that repeat others at the same offset; stream offset of the first
  uint64_t late_payloads = 0, first_late = 0;     ///< payloads after others of larger offset; stream offset of the first
  bool unplaced = false;                          ///< payloads are missing because their offsets are too large
};

/// Sorts `payloads`, given in file order, by offset. Up to 7 bytes that the next payload repeats are the recorder's padding.
[[nodiscard]] PlacedPayloads place_payloads(std::vector<AuxPayload> payloads);

}  // namespace ptd
