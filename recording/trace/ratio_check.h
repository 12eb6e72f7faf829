// Checks the ratio of TSC and crystal clock against the packets that contain both. Private to recording.
#pragma once

#include <functional>
#include <vector>

#include "ptdecode/finding.h"
#include "ptdecode/pt/config.h"
#include "recording/trace/segments.h"
#include "recording/trace/streams.h"

namespace ptd {

/// Compares how far TSC and crystal clock (TMA) advance between the PSBs of all streams. A wrong ratio contradicts most pairs of PSBs.
/// The TSC of a VMX guest is another clock, with a constant offset. PSBs of a guest are compared with each other, and only count if the
/// host has none. Not thread-safe.
///
/// Limitations: not found if the ratio is wrong by less than 0.1 %, if no stream has three PSBs with TSC and TMA, or if they are far apart
/// by a ratio of 8 or more. A guest with a scaled TSC, in a trace without PSBs of the host, is reported too.
class RatioCheck {
 public:
  explicit RatioCheck(const pt::Config& config) : ratio_{config.tsc_ctc_ratio_n, config.tsc_ctc_ratio_d} {}
  /// Adds the PSBs of one stream. Scans it; `visit` gets each offset that it reaches.
  void add(const AuxStream& stream, const SegmentIndex& index, const std::function<void(uint64_t offset)>& visit);
  /// Returns one finding if the ratio is wrong, else none.
  [[nodiscard]] std::vector<Finding> findings() const;

 private:
  /// Pairs of PSBs that were compared.
  struct Pairs {
    uint64_t judged = 0, wrong = 0, distant = 0;  ///< distant: too far apart to be judged
    [[nodiscard]] bool refute() const { return wrong >= 2 && wrong * 2 > judged; }
  };
  /// Neighbours, and PSBs so far apart that a small error shows.
  struct Clock {
    Pairs near, far;
    [[nodiscard]] bool is_judged() const { return near.judged >= 2; }
  };
  /// PSBs with one clock: the first one of a distant pair, and the last one.
  struct Track {
    PsbEntry start, before;
  };
  void compare(const PsbEntry& from, const PsbEntry& to, Pairs& pairs) const;
  [[nodiscard]] uint64_t crystal_ticks(const PsbEntry& from, const PsbEntry& to) const;

  ClockRatio ratio_;
  Clock host_, guests_;
};

}  // namespace ptd
