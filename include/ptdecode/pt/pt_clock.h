// PtClock: turns TSC, TMA, MTC, CYC and CBR packets into a time with bounds.
#pragma once

#include <limits>

#include "ptdecode/export.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/pt/packet.h"

namespace ptd::pt {

/// The value of latest() if the time has no upper bound.
inline constexpr Tsc kTscMax{std::numeric_limits<uint64_t>::max()};
/// Offset of a packet whose position is not known.
inline constexpr uint64_t kNoOffset = std::numeric_limits<uint64_t>::max();

/// Follows the timing packets of one stream in order. Plain state, trivially copyable, no allocation; not thread-safe. Units: TSC ticks.
///
/// Method ([SDM] "Tracking Time", "Estimating TSC Within Intel PT"; N/D = CPUID.15H:EBX/EAX, P1 = nominal ratio):
/// - TSC gives the exact time.
/// - A TMA after it means that CTC `ctc` began at TSC - FastCounter. This is the anchor. If the FastCounter is more than a tick of the CTC,
///   times are uncertain by half a tick up to the next TSC.
/// - MTC means that the CTC reached a multiple of 2^MTCFreq. The time is anchor + elapsed CTC ticks * N/D, always computed from the anchor,
///   so that rounding errors do not accumulate. The CTC is tracked modulo 2^(MTCFreq+8). The bounds are one tick wider on each side.
/// - A run of missing MTCs is assumed to be shorter than a window of 256: a core that wakes from a sleep sends a TSC ([SDM] packets of
///   MWAIT, "packet sent on wake"). After an OVF, whole windows may be lost: earliest() then counts none of them and latest() is unbounded
///   until the next TSC. See also on_short_loss().
/// - An MTC that follows its TSC/TMA but belongs to an edge before it (packets are reordered) has no effect.
/// - MTC before any TMA: edges are counted from the TSC; the time is uncertain by one MTC period.
/// - CYC adds cycles, scaled by the ratio measured between two timing packets that each directly followed a CYC, or by P1/CBR before the
///   first measurement. The bounds assume the ratio to be within 1/16 until a CBR packet gives another one; they are limited by the MTC
///   edges around. The cycle counter stops while the core sleeps: without MTCs, a CYC has no upper bound.
///
/// now() and earliest() never go back, except at a TSC packet, which corrects the estimate. If it contradicts even the bounds (a guest's
/// offset, another configuration), the clock restarts from it and counts a jump.
class PTD_API PtClock {
 public:
  PtClock() = default;
  explicit PtClock(const Config& config);

  /// Updates the clock. Packets without time are ignored, except OVF. Returns true if the clock is known and the packet set its time or
  /// bounds. `offset_bytes` (the packet's position in the stream) shows which packets are adjacent; without it CYC is not calibrated.
  bool on_packet(const Packet& packet, uint64_t offset_bytes = kNoOffset);
  /// Fast form of on_packet() for the simple MTC: the expected edge, after a TMA, with no CYC next to it. Returns false if it is
  /// not simple; nothing has changed then and on_packet() must be called.
  bool on_due_mtc(uint8_t mtc, uint64_t offset_bytes) { return expects_mtcs() && !ends_cyc(offset_bytes) && step_due_mtc(mtc); }
  /// Same as on_packet() for a CYC packet that ends at `end_bytes`, with known().
  bool on_cyc_at(uint64_t cycles, uint64_t end_bytes) {
    cyc_end_ = end_bytes;
    return on_cyc(cycles);
  }
  /// The parts of on_due_mtc(). Only other packets than simple MTCs change the result of expects_mtcs().
  [[nodiscard]] bool expects_mtcs() const { return expects_mtcs_; }
  [[nodiscard]] bool ends_cyc(uint64_t offset_bytes) const { return cyc_end_ == offset_bytes; }
  bool step_due_mtc(uint8_t mtc) {
    const unsigned step = (mtc - unsigned{last_mtc_}) & 0xff;
    const int64_t elapsed = elapsed_ + static_cast<int64_t>(period() * step);
    if (step - 1U >= kPlausibleSteps || elapsed < 0 || elapsed > kShortTicks) return false;
    const uint64_t moment = anchor_tsc_ + short_edge(elapsed);
    if (moment < earliest_ || moment < tsc_ || moment == 0) return false;
    elapsed_ = elapsed;
    last_mtc_ = mtc;
    holes_ += step > 1 ? 1 : 0;
    tsc_ = moment;
    earliest_ = earliest_ > moment - 1 ? earliest_ : moment - 1;
    latest_ = moment + 2;
    return true;
  }
  /// Has the effect of step_due_mtc() for each MTC packet in the run of adjacent MTC packets at `at`, until it would return false. Call it
  /// after step_due_mtc() has returned true. Returns the offset after the last MTC that was processed.
  uint64_t step_due_mtcs(Bytes bytes, uint64_t at, uint64_t end) {
    constexpr std::byte kMtc{0x59};
    int64_t elapsed = elapsed_;
    const uint64_t from = at;
    for (; end - at >= 2 && bytes[at] == kMtc; at += 2) {
      const auto mtc = static_cast<uint8_t>(bytes[at + 1]);
      const unsigned step = (mtc - unsigned{last_mtc_}) & 0xff;
      const int64_t next = elapsed + static_cast<int64_t>(period() * step);
      if (step - 1U >= kPlausibleSteps || next > kShortTicks) break;
      elapsed = next;
      last_mtc_ = mtc;
      holes_ += step > 1 ? 1 : 0;
    }
    if (at == from) return at;
    elapsed_ = elapsed;
    tsc_ = anchor_tsc_ + short_edge(elapsed);  // it never goes back, so only the last one counts
    earliest_ = earliest_ > tsc_ - 1 ? earliest_ : tsc_ - 1;
    latest_ = tsc_ + 2;
    return at;
  }
  /// Declares that packets are missing at this point, as after an OVF, or that their time is not known.
  void on_loss() {
    (void)on_overflow();
    expects_mtcs_ = false;
  }
  /// Same as on_loss(), where later packets show that less than a window of MTCs is missing: after the next MTC, the time has an upper
  /// bound again. That one may be late by up to a period.
  void on_short_loss();
  /// Resets everything but the configuration, the reference and the calibration (loss of flow, PSB of a segment after lost data).
  void reset();
  /// Sets a time close to the trace's, such as that of the AUX record: it gives bits 63:56, which no packet has. Call before the first TSC.
  void set_reference(Tsc reference) { reference_ = reference.value; }

  [[nodiscard]] bool known() const { return known_; }
  /// Returns the best estimate of the time of the last timing packet.
  [[nodiscard]] Tsc now() const { return Tsc{tsc_}; }
  /// Return the bounds of the time of the last timing packet, including rounding of CTC and the error of the cycle ratio.
  [[nodiscard]] Tsc earliest() const { return Tsc{earliest_}; }
  [[nodiscard]] Tsc latest() const { return Tsc{latest_}; }  ///< kTscMax: unbounded
  /// Returns earliest() and latest() on the timeline's clock.
  [[nodiscard]] Interval interval(const TimeConversion& time) const { return time.to_interval(earliest(), latest()); }
  /// Returns the core cycles counted by CYC so far (for IPC); 0 without CYC.
  [[nodiscard]] uint64_t cycles() const { return cycles_; }
  /// Returns the core-to-bus ratio of the last CBR; 0 if there was none.
  [[nodiscard]] uint8_t cbr() const { return cbr_; }
  /// Returns the TSC ticks per core cycle used for CYC, times 2^24; 0 if not known.
  [[nodiscard]] uint64_t ratio() const { return ratio_; }
  /// Return the number of runs of missing MTCs, and of TSC packets that contradicted the bounds.
  [[nodiscard]] uint32_t holes() const { return holes_; }
  [[nodiscard]] uint32_t jumps() const { return jumps_; }

 private:
  enum class Anchor : uint8_t { none, counted, exact };
  static constexpr unsigned kPlausibleSteps = 3;  ///< MTC periods between two MTCs that need no explanation
  static constexpr uint64_t kShortAnchor = uint64_t{1} << 62;
  static constexpr int64_t kShortTicks = int64_t{1} << 30;  ///< times a ratio of 32 bits: less than kShortAnchor

  void on_tsc(uint64_t payload, bool beside_cyc);
  bool on_tma(const Packet& packet);
  bool on_mtc(uint8_t mtc, bool beside_cyc);
  bool on_cyc(uint64_t cycles);
  void on_cbr(uint8_t ratio);
  bool on_overflow();
  bool take(const Packet& packet, uint64_t offset_bytes);
  void calibrate(bool beside_cyc);
  [[nodiscard]] unsigned mtc_step(uint8_t mtc);
  [[nodiscard]] uint64_t edge(int64_t ctc_ticks) const;
  /// Returns TSC ticks from the anchor to an edge at most kShortTicks after it. Most processors' ratio is a whole number: no slow division.
  [[nodiscard]] uint64_t short_edge(int64_t ctc_ticks) const {
    const uint64_t ticks = static_cast<uint64_t>(ctc_ticks) * ratio_n_;
    return ratio_d_ == 1 ? ticks : ticks / ratio_d_;
  }
  [[nodiscard]] uint64_t period() const { return uint64_t{1} << mtc_shift_; }

  uint64_t tsc_ = 0, earliest_ = 0, latest_ = 0, cycles_ = 0;
  uint64_t anchor_tsc_ = 0;             ///< exact: time of the CTC tick given by TMA. counted: the TSC before the first MTC
  int64_t elapsed_ = 0;                 ///< ticks of the CTC from the anchor to the last MTC's edge
  uint64_t due_anchor_ = ~uint64_t{0};  ///< `anchor_tsc_` and `elapsed_` for which `due_` and `overdue_` were computed
  int64_t due_elapsed_ = std::numeric_limits<int64_t>::min();
  uint64_t due_ = 0, overdue_ = 0;                  ///< time of the next edge, and upper bound for the next MTC
  uint64_t ref_tsc_ = 0, ref_lo_ = 0, ref_hi_ = 0;  ///< time of the last CYC and its bounds
  uint64_t ratio_ = 0;                              ///< TSC ticks per core cycle << 24
  uint64_t cal_tsc_ = 0, cal_cycles_ = 0;           ///< calibration: its start, cycles since
  uint64_t reference_ = 0;
  uint64_t cyc_end_ = kNoOffset;        ///< end of the last CYC, in bytes of the stream
  uint32_t ratio_n_ = 0, ratio_d_ = 0;  ///< TSC ticks per tick of the CTC, as a reduced fraction
  uint32_t holes_ = 0, jumps_ = 0;
  uint8_t mtc_shift_ = 0, nominal_ = 0, cbr_ = 0, last_mtc_ = 0;
  Anchor anchor_ = Anchor::none;
  bool has_mtc_ = false;  ///< the trace has MTCs, whose edges bound CYC from above
  bool known_ = false;
  bool first_mtc_ = false;  ///< the next MTC is the first after TMA
  bool tma_due_ = false;    ///< after a TSC whose TMA has not come yet
  bool lost_ = false;       ///< whole windows of MTCs may be missing
  bool is_short_ = false;   ///< lost_ ends at the next MTC
  bool calibrating_ = false, measured_ = false;
  bool loses_cyc_ = false;  ///< erratum SKL168: cycles before a PSB may be missing
  bool expects_mtcs_ = false;
};

}  // namespace ptd::pt
