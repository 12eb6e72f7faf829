// PsbMatcher: finds the PSBs of a decoded stream among those of its ground truth.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ptdecode/aux_segment.h"

namespace ptd::cli {

/// A PSB of a stream.
struct PsbMark {
  uint64_t offset_bytes = 0;    ///< in the stream
  std::optional<uint64_t> tsc;  ///< of its PSB+, bits 55:0; none: it has no TSC packet
};

/// Returns the mark of a segment of an Intel PT stream, as its packets have it.
[[nodiscard]] PsbMark psb_mark(const AuxSegment& segment);

/// Where bytes are missing from a trace or were inserted, all later PSBs are at other offsets than in the truth, but their times are the
/// same. A PSB whose TSC is damaged is found by its distance from the one found before it.
/// Limitation: without TSC packets, no PSB after such a place is found.
class PsbMatcher {
 public:
  /// The PSBs of the truth, in order.
  explicit PsbMatcher(std::vector<PsbMark> truth);

  /// Returns the index of a decoded PSB in the truth, after those that were returned before; none if it is not there, or out of order.
  /// Call for each decoded PSB, in order.
  [[nodiscard]] std::optional<size_t> find(const PsbMark& decoded);

 private:
  std::vector<PsbMark> truth_;
  using Index = std::vector<std::pair<uint64_t, size_t>>;
  [[nodiscard]] static std::optional<size_t> first_in(const Index& index, uint64_t key, size_t from);
  Index by_tsc_, by_offset_;  ///< indices of truth_, in order
  size_t next_ = 0;           ///< the first that may be returned
  uint64_t shift_ = 0;        ///< offset in the truth minus offset in the decoded stream, modulo 2^64
};

}  // namespace ptd::cli
