// TimeAhead: reads a segment's timing packets ahead of its flow, so that the moment after an item is known when the item is made.
#pragma once

#include <cstdint>
#include <vector>

#include "decoder/pt/packet/zero_run.h"
#include "ptdecode/aux_segment.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"

namespace ptd::pt {

/// The likeliest moment of a timing packet, and the core cycles that CYC packets counted up to it.
struct Moment {
  TimeNs about{};
  uint64_t cycles = 0;
  bool operator==(const Moment&) const = default;
};

/// What a timing packet told.
struct TimePoint {
  uint64_t offset_bytes = 0;  ///< of the packet, in the segment
  uint64_t end_bytes = 0;     ///< behind it
  TimeNs first, last;         ///< bounds of its moment, joined with those before: `first` never goes back
  Moment moment;              ///< `about` lies within the bounds
  bool bounds = false;        ///< false: it told no time (no TSC yet)
};

/// One for each segment's ItemReader. The reader of the flow says which points it has passed; the scan runs ahead of it to the next point
/// with bounds, at most kMaxAheadBytes: further away, the segment's own end bounds what stands before. Where points are close together
/// some are read at once.
class TimeAhead {
 public:
  void begin(const AuxSegment& segment, const Config& config, uint64_t slack_ns);

  /// The first point not yet passed; null at the segment's end.
  [[nodiscard]] const TimePoint* next() {
    if (head_ == points_.size() && !scan()) return nullptr;
    return &points_[head_];
  }
  /// Upper bound of the first point with bounds that was not passed.
  [[nodiscard]] TimeNs next_last() {
    if (bound_ < head_) bound_ = head_;
    for (;; ++bound_) {
      if (bound_ == points_.size() && !scan()) return end_;
      if (points_[bound_].bounds) return points_[bound_].last;
    }
  }
  /// Passes the points up to `offset`, inclusive. `first` becomes the lower bound of the last that told bounds.
  void pass(uint64_t offset, TimeNs& first, Moment& moment) {
    while (next() != nullptr && points_[head_].offset_bytes <= offset) {
      const TimePoint& point = points_[head_++];
      moment = point.moment;
      if (point.bounds) first = point.first;
    }
  }
  /// Passes the point that next() gave.
  void pass_one() { ++head_; }
  /// Where pass() stands; rewind() goes back to it. Places older than the last kKeptPoints points are gone.
  [[nodiscard]] uint64_t place() const { return dropped_ + head_; }
  void keep_from(uint64_t place) { kept_ = place; }
  void rewind(uint64_t place) {
    head_ = static_cast<size_t>(place - dropped_);
    bound_ = head_;
  }

 private:
  static constexpr uint64_t kMaxAheadBytes = 1U << 20;
  bool scan();
  bool scan_packet();
  void pass_zeros();
  void scan_plain();
  void scan_tail();
  void add(uint64_t offset, uint64_t end, bool bounds);
  [[nodiscard]] Interval ns_of(Tsc first, Tsc last) const;
  void drop_passed();

  AuxSegment segment_;
  Config config_;
  PacketReader reader_;
  PtClock clock_;
  uint64_t slack_ns_ = 0;
  bool splits_time_ = false;  ///< see ns_of()
  uint64_t own_bytes_ = 0;
  ZeroRun zeros_;        ///< the next one
  uint64_t window_ = 0;  ///< offset from which kMaxAheadBytes are counted
  TimeNs first_, last_, end_, about_;
  std::vector<TimePoint> points_;
  size_t head_ = 0, bound_ = 0;
  uint64_t dropped_ = 0, kept_ = ~uint64_t{0};
  bool in_start_ = false, done_ = true;
};

/// Corrects a TSC packet of a PSB+ as `check` says. False: its moment is not known.
[[nodiscard]] bool correct_tsc(Packet& packet, const TscCheck& check);
/// Corrects a TSC packet that is in no PSB+. What moved the TSCs of PSBs may have moved this one, too: the segment's bounds decide.
[[nodiscard]] bool correct_tsc_between(Packet& packet, const AuxSegment& segment, const TimeConversion& time);
/// TSC, TMA, MTC, CYC, CBR.
[[nodiscard]] constexpr bool is_timing(PacketKind kind) {
  return kind == PacketKind::tsc || kind == PacketKind::mtc || kind == PacketKind::tma || kind == PacketKind::cyc ||
         kind == PacketKind::cbr;
}
/// Offset of the first packet at or behind `at` and before `end` that is no TNT, TIP or PAD.
[[nodiscard]] uint64_t skip_plain(Bytes bytes, uint64_t at, uint64_t end);

}  // namespace ptd::pt
