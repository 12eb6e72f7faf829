// TimeAhead: pre-reads a segment's timing packets, so that each item is created with the time after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "decoder/pt/packet/zero_run.h"
#include "ptdecode/aux_segment.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"

namespace ptd::pt {

/// The likeliest time of a timing packet, and the core cycles counted by CYC packets up to it.
struct Moment {
  /// Code in which more time passes gets a mark of its own, even if the bounds of its time are those of the code before it.
  static constexpr uint64_t kMarkedNs = 1'000;
  TimeNs about{};
  uint64_t cycles = 0;
  bool operator==(const Moment&) const = default;
  /// Returns whether a mark of this moment also serves for `later`.
  [[nodiscard]] bool serves(const Moment& later) const { return cycles == later.cycles && later.about.value - about.value <= kMarkedNs; }
};

/// The times from a timing packet, or from several that directly follow each other.
struct alignas(64) TimePoint {
  uint64_t offset_bytes = 0;  ///< of the first packet, in the segment
  uint64_t end_bytes = 0;     ///< end of the last packet
  TimeNs first;               ///< lower bound for what follows; it never goes back
  TimeNs last;                ///< upper bound for what precedes
  Moment moment;              ///< `about` lies within the bounds
  bool bounds = false;        ///< false: the packet gave no time (no TSC yet)
};

/// One per segment's ItemReader. The ItemReader reports which points it has passed; the scan pre-reads up to the next point with bounds, at
/// most kMaxAheadBytes. Beyond that, the end of the segment is the upper bound.
///
/// A flow that needs no upper bound for now reads timing packets where it meets them: see may_read_at().
///
/// An MTC packet counts from the one before it, so that one wrong bit moves all times up to the next TSC, mostly by 256 periods. The count
/// of undamaged packets is never too high, as missing ones lower it: if it comes to a later time than that TSC, the MTC packets from the
/// first that is not the expected one on are not used, and the TSC bounds the times. An MTC that repeats the one before it, although the
/// next TSC comes before 256 periods have passed, is not used either, nor is a TMA's impossible FastCounter.
///
/// An OVF loses less than 256 MTC packets ([SDM] "Mini Time Counter (MTC) Packet"), so that the next one gives an upper bound again, unless
/// the next TSC is whole windows of 256 later than the packets before it count to.
class TimeAhead {
 public:
  static constexpr uint64_t kMaxAheadBytes = 1U << 20;
  void begin(const AuxSegment& segment, const Config& config, uint64_t slack_ns);

  /// Returns the first point not yet passed; null at the segment's end.
  [[nodiscard]] const TimePoint* next() {
    if (head_ == count_ && (done_ || !scan())) return nullptr;
    return &points_[head_];
  }
  /// Returns the upper bound of the first point with bounds that was not passed.
  [[nodiscard]] TimeNs next_last() {
    if (head_ < count_ && points_[head_].bounds) return points_[head_].last;
    if (bound_ < head_) bound_ = head_;
    for (;; ++bound_) {
      if (bound_ == count_ && (done_ || !scan())) return end_;
      if (points_[bound_].bounds) return points_[bound_].last;
    }
  }
  /// Passes the points up to and including `offset`. Sets `first` to the lower bound of the last one with bounds.
  void pass(uint64_t offset, TimeNs& first, Moment& moment) {
    while (next() != nullptr && points_[head_].offset_bytes <= offset) {
      const TimePoint& point = points_[head_++];
      moment = point.moment;
      if (point.bounds) first = point.first;
    }
  }
  /// Passes the point that next() returned.
  void pass_one() { ++head_; }

  /// Returns the upper bound of all times in the segment that the segment's end gives. The clock may contradict it.
  [[nodiscard]] TimeNs end() const { return end_; }
  /// Returns whether packets read so far count to a later time than that of the next PSB. The times given do not show it.
  [[nodiscard]] bool passed_end() const { return passed_end_; }
  /// Returns the offset of the first MTC or TMA packet that is not used because another one contradicts it, or of the TSC from which on MTC
  /// packets counted to a later time than the next one, if none of them stands out. kNoOffset: no packet read so far contradicts another
  /// one.
  [[nodiscard]] uint64_t contradicted_at() const { return contradicted_at_; }
  /// Returns whether packets read so far show that TSCs may be those of a VMX guest.
  [[nodiscard]] bool in_guest() const { return in_guest_; }
  /// Returns whether all points read were passed, so that read_at() may read the next one. Packets that come before it and have no time
  /// need not be told, except to skip_to().
  [[nodiscard]] bool may_read_at() const { return head_ == count_ && !done_ && !in_start_ && reader_.block_items() == 0; }
  /// Returns the offset up to which packets without a time may be passed by before skip_to().
  [[nodiscard]] uint64_t skip_limit() const { return window_ + kMaxAheadBytes; }
  /// Reads the timing packet at `offset` and passes it. Returns null, and changes nothing, if only the scan can read it.
  const TimePoint* read_at(uint64_t offset);
  /// Declares that the packets before `offset` have no time.
  void skip_to(uint64_t offset) {
    if (offset > reader_.offset()) reader_.seek(offset);
  }

 private:
  bool scan();
  bool scan_packet();
  void pass_zeros();
  void scan_plain();
  void scan_tail();
  void update_bounds();
  TimePoint& append() {
    if (count_ == points_.size()) points_.resize(2 * count_ + 1);
    return points_[count_++];
  }
  void date(TimePoint& point, uint64_t offset, uint64_t end, bool bounds);
  void date_here(TimePoint& point, uint64_t offset, uint64_t end, bool bounds);
  void add(uint64_t offset, uint64_t end, bool bounds) { date(append(), offset, end, bounds); }
  bool read_mtcs(uint64_t at, uint64_t end, TimePoint& point);
  void add_mtcs(TimePoint& point, uint64_t end);
  bool read_cyc(uint64_t at, uint64_t end, TimePoint& point);
  bool read_mtc(const Packet& packet, uint64_t offset);
  /// How MTC packets agree with the TSC after them.
  enum class Count : uint8_t {
    unknown,
    complete,  ///< no window of 256 is missing
    too_high,  ///< they count to a later time
  };
  [[nodiscard]] Count count_to_tsc(uint64_t& compared_to, uint64_t more_ticks = 0) const;
  [[nodiscard]] bool is_damaged_repeat(uint64_t offset);
  [[nodiscard]] Count count_at(const Packet& tsc, uint64_t offset, bool in_guest, PtClock& clock, uint64_t more_ticks = 0) const;
  [[nodiscard]] bool misses_windows(uint64_t ahead) const;
  void pass_overflow();
  [[nodiscard]] uint64_t period_ticks() const {
    return (uint64_t{config_.tsc_ctc_ratio_n} << (config_.mtc_period & 15U)) / std::max(config_.tsc_ctc_ratio_d, 1U);
  }
  [[nodiscard]] bool ends_in_guest() const;
  bool read_tsc(const Packet& packet, uint64_t offset);
  [[nodiscard]] uint64_t plain_end() const { return std::max(std::min(own_bytes_, zeros_.first), reader_.offset()); }
  void begin_ns_of();
  [[nodiscard]] Interval ns_of(Tsc first, Tsc last);
  [[nodiscard]] Interval ns_of_far(Tsc first, Tsc last);

  AuxSegment segment_;
  Config config_;
  PacketReader reader_;
  PtClock clock_;
  uint64_t slack_ns_ = 0;
  static constexpr uint64_t kNotLarge = ~uint64_t{0};
  /// Converts the times whose large part, after a shift, is `large`: base + ((time & mask) * mult >> shift). See ns_of().
  struct {
    uint64_t large = kNotLarge, base = 0, mask = ~uint64_t{0}, mult = 1;
    unsigned shift = 0, large_shift = 63;
    unsigned round_up = 0;  ///< of the last time
    bool shares = false;    ///< `large` is that of the last times
  } near_;
  uint64_t own_bytes_ = 0;
  ZeroRun zeros_;        ///< the next run of zeros
  uint64_t window_ = 0;  ///< offset from which kMaxAheadBytes are counted
  struct {
    TimeNs first, last, about;
  } bounds_;  ///< the bounds after the last timing packet, and the likeliest time
  TimeNs end_;
  TimeNs limit_;             ///< of lower bounds: the next PSB's TSC
  uint64_t counted_to_ = 0;  ///< up to there the count of MTC packets was compared with the next TSC
  uint64_t repeats_to_ = 0;  ///< the TSC there shows that MTCs before it that repeat the one before them are damaged
  uint64_t contradicted_at_ = kNoOffset;
  uint64_t tsc_at_ = 0;  ///< offset of the last TSC, 0: that of the PSB+
  bool passed_end_ = false;
  bool miscounts_ = false;         ///< MTC packets are not used up to the next TSC
  bool in_guest_ = false;          ///< the segment has times of a VMX guest, whose TSC is another clock
  std::vector<TimePoint> points_;  ///< the first count_ are in use
  size_t head_ = 0, bound_ = 0, count_ = 0;
  TimePoint here_;  ///< the result of read_at()
  bool in_start_ = false, done_ = true;
  bool is_complete_ = false;  ///< OVFs before complete_to_ lost no window of MTC packets
  uint64_t complete_to_ = 0;  ///< offset of the TSC that shows it
};

/// Corrects a TSC packet of a PSB+ according to `check`. Returns false if its time is not known.
[[nodiscard]] bool correct_tsc(Packet& packet, const TscCheck& check);
/// Corrects a TSC packet outside a PSB+. It may have the same error as the TSCs of PSBs: the segment's bounds decide.
[[nodiscard]] bool correct_tsc_between(Packet& packet, const AuxSegment& segment, const TimeConversion& time);
/// Returns whether a packet is a timing packet: TSC, TMA, MTC, CYC, CBR.
[[nodiscard]] constexpr bool is_timing(PacketKind kind) {
  return kind == PacketKind::tsc || kind == PacketKind::mtc || kind == PacketKind::tma || kind == PacketKind::cyc ||
         kind == PacketKind::cbr;
}
/// Returns the offset of the first packet in [at, end) that is not a TNT, TIP, TIP.PGE, TIP.PGD, FUP or PAD.
[[nodiscard]] uint64_t skip_plain(Bytes bytes, uint64_t at, uint64_t end);

}  // namespace ptd::pt
