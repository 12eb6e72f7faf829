// SegmentIndex: where the PSBs of a stream stand and when they were written. Private to recording.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "decoder/arm/config.h"
#include "decoder/pt/config.h"
#include "image/base/aux_segment.h"
#include "recording/streams.h"

namespace ptd {

/// One PSB. 24 bytes each: an index of a stream of many GB stays small.
struct PsbEntry {
  uint64_t offset_bytes = 0;  ///< stream offset of the PSB
  uint64_t tsc = 0;           ///< TSC of its PSB+
  uint32_t tail_bytes = 0;    ///< length of its PSB+, up to and including PSBEND (bounded)
  bool has_tsc = false;
  bool in_root = false;  ///< its PIP says: not in VMX non-root operation
};

/// How segments get their time bounds.
struct SegmentTiming {
  TimeConversion time;
  uint64_t slack_ns = 0;
  bool use_time = true;
};

/// Built once by a scan of the stream; then immutable.
///
///     stream  ...| PSB+ a ........ | PSB+ b ..... seam | lost | PSB+ c ...
///     segment     [0 ..............][1 ...............]        [2 ......
///                      + tail: PSB+ b
///
/// Invariant: a segment never crosses a seam. Bytes after a seam and before the next PSB belong to no segment.
class SegmentIndex {
 public:
  /// Called with each stretch [first, last) of stream offsets when it is scanned.
  using Passed = std::function<void(uint64_t first, uint64_t last)>;
  void build(const AuxStream& stream, const Passed& passed);

  /// The same of ETMv4 and ETE: an entry is an A-Sync behind which everything is told anew, so that the flow needs nothing from before.
  void build_arm(const AuxStream& stream, const arm::TraceConfig& config, const Passed& passed);

  [[nodiscard]] size_t size() const { return entries_.size(); }
  [[nodiscard]] const std::vector<PsbEntry>& entries() const { return entries_; }
  /// Bytes that belong to no segment.
  [[nodiscard]] uint64_t skipped_bytes() const { return skipped_bytes_; }
  /// Segment `index` (< size()) with its bytes; see Recording::segment.
  [[nodiscard]] AuxSegment segment(const AuxStream& stream, size_t index, const SegmentTiming& timing,
                                   std::vector<std::byte>& scratch) const;
  /// Time bounds of segment `index`: from its own PSB+ to the next one that has a TSC; after the last TSC, to the AUX record behind it.
  [[nodiscard]] Interval time_of(const AuxStream& stream, size_t index, const SegmentTiming& timing) const;
  /// First segment whose bounds end at or after `t`; size() if none.
  [[nodiscard]] size_t at(const AuxStream& stream, TimeNs t, const SegmentTiming& timing) const;

 private:
  using Finder = uint64_t (*)(Bytes bytes, uint64_t from);
  void scan_chunk(const AuxStream& stream, size_t chunk_index, Finder find, uint64_t pattern_bytes, std::vector<uint64_t>& found,
                  const Passed& passed) const;
  void scan(const AuxStream& stream, Finder find, uint64_t pattern_bytes, const Passed& passed, std::vector<uint64_t>& found) const;
  void count_skipped(const AuxStream& stream);
  void build_whole(const AuxStream& stream, const Passed& passed);
  std::vector<PsbEntry> entries_;
  uint64_t skipped_bytes_ = 0;
};

}  // namespace ptd
