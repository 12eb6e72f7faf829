// PtClock: the arithmetic of timing packets.
#include "ptdecode/pt/pt_clock.h"

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "decoder/pt/packet/fast_counter.h"

namespace ptd::pt {
namespace {

constexpr unsigned kRatioShift = 24;
constexpr unsigned kToleranceShift = 4;  // a ratio is known to within 1/16
constexpr unsigned kTmaBits = 16;        // of the CTC in TMA
constexpr unsigned kSlipSteps = 8;       // MTCs that may come late, after their TMA
constexpr uint64_t kMinCalibrationCycles = 64;
constexpr uint64_t kPayloadMask = (uint64_t{1} << 56) - 1;
constexpr uint64_t kHuge = uint64_t{1} << 63;

uint64_t add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kTscMax.value : sum;
}
uint64_t sub(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/// Returns cycles * ratio in ticks, clamped below 2^63.
uint64_t scale(uint64_t cycles, uint64_t ratio) {
  const unsigned __int128 ticks = (static_cast<unsigned __int128>(cycles) * ratio) >> kRatioShift;
  return ticks > kHuge ? kHuge : static_cast<uint64_t>(ticks);
}

}  // namespace

static_assert(std::is_trivially_copyable_v<PtClock> && sizeof(PtClock) < 200);

PtClock::PtClock(const Config& config) {
  if (config.tsc_ctc_ratio_n != 0 && config.tsc_ctc_ratio_d != 0) {
    const uint32_t common = std::gcd(config.tsc_ctc_ratio_n, config.tsc_ctc_ratio_d);
    ratio_n_ = config.tsc_ctc_ratio_n / common;
    ratio_d_ = config.tsc_ctc_ratio_d / common;
  }
  mtc_shift_ = config.mtc_period & 15;
  nominal_ = config.max_nonturbo_ratio;
  has_mtc_ = config.has_mtc;
  loses_cyc_ = config.errata.skl168;
}

void PtClock::reset() {
  PtClock fresh;
  fresh.ratio_n_ = ratio_n_;
  fresh.ratio_d_ = ratio_d_;
  fresh.mtc_shift_ = mtc_shift_;
  fresh.nominal_ = nominal_;
  fresh.ratio_ = ratio_;
  fresh.measured_ = measured_;
  fresh.cbr_ = cbr_;
  fresh.has_mtc_ = has_mtc_;
  fresh.loses_cyc_ = loses_cyc_;
  fresh.reference_ = known_ ? tsc_ : reference_;
  *this = fresh;
}

bool PtClock::on_packet(const Packet& packet, uint64_t offset_bytes) {
  const bool told = take(packet, offset_bytes);
  expects_mtcs_ = anchor_ == Anchor::exact && !first_mtc_ && !lost_ && known_ && has_mtc_ && anchor_tsc_ < kShortAnchor && ratio_d_ != 0;
  return told;
}

bool PtClock::take(const Packet& packet, uint64_t offset_bytes) {
  const bool beside_cyc = cyc_end_ != kNoOffset && cyc_end_ == offset_bytes;
  switch (packet.kind) {
    case PacketKind::cyc:
      if (offset_bytes != kNoOffset) cyc_end_ = offset_bytes + packet.size_bytes;
      return on_cyc(packet.value);
    case PacketKind::mtc:
      return on_mtc(static_cast<uint8_t>(packet.value), beside_cyc);
    case PacketKind::tsc:
      on_tsc(packet.value, beside_cyc);
      return true;
    case PacketKind::tma:
      return on_tma(packet);
    case PacketKind::cbr:
      on_cbr(static_cast<uint8_t>(packet.value));
      return false;
    case PacketKind::ovf:
      return on_overflow();
    case PacketKind::psb:
      if (loses_cyc_) calibrating_ = false;
      return false;
    default:
      return false;
  }
}

/// Returns the TSC `ctc_ticks` after the anchor, rounded down.
uint64_t PtClock::edge(int64_t ctc_ticks) const {
  if (ratio_d_ == 0) return anchor_tsc_;
  if (ctc_ticks >= 0 && ctc_ticks <= kShortTicks && anchor_tsc_ < kShortAnchor)  // nearly always: no wide division
    return anchor_tsc_ + static_cast<uint64_t>(ctc_ticks) * ratio_n_ / ratio_d_;
  const __int128 product = static_cast<__int128>(ctc_ticks) * ratio_n_;
  __int128 ticks = product / ratio_d_;
  if (product < 0 && product % ratio_d_ != 0) ticks -= 1;
  const __int128 moment = static_cast<__int128>(anchor_tsc_) + ticks;
  if (moment < 0) return 0;
  return moment > static_cast<__int128>(kTscMax.value - 1) ? kTscMax.value - 1 : static_cast<uint64_t>(moment);
}

void PtClock::on_tsc(uint64_t payload, bool beside_cyc) {
  // Choose bits 63:56 that bring the payload nearest to the known time.
  const uint64_t near = known_ ? tsc_ : reference_;
  uint64_t tsc = (near & ~kPayloadMask) | (payload & kPayloadMask);
  constexpr uint64_t kHalf = uint64_t{1} << 55;
  if (near != 0 && tsc + kHalf < near && tsc <= kTscMax.value - 2 * kHalf) tsc += 2 * kHalf;
  if (near != 0 && tsc > near && tsc - near > kHalf && tsc >= 2 * kHalf) tsc -= 2 * kHalf;

  const bool jumped = known_ && tsc < earliest_;
  if (jumped) ++jumps_;
  // The old anchor remains valid for the MTCs up to this TSC's TMA, unless it is known to be off.
  const uint64_t span = edge(elapsed_ + static_cast<int64_t>(period() * (kPlausibleSteps + 1)));
  if (jumped || lost_ || anchor_ == Anchor::none || tsc > span) anchor_ = Anchor::none;
  if (jumped) calibrating_ = false;
  // The TSC is read before the packets around it are generated: the next CYC may count from a later time (seen: 130 ticks in a first PSB+),
  // so only MTC edges bound it from above. Without an adjacent CYC, the count starts at the previous CYC, or at an unknown time.
  if (beside_cyc) {
    ref_tsc_ = ref_lo_ = tsc;
  } else if (!known_ || jumped) {
    ref_tsc_ = tsc;
    ref_lo_ = 0;
  }
  ref_hi_ = kTscMax.value;
  tsc_ = earliest_ = latest_ = tsc;
  known_ = true;
  lost_ = is_short_ = false;
  tma_due_ = true;
  calibrate(beside_cyc);
}

bool PtClock::on_tma(const Packet& packet) {
  if (!known_ || !tma_due_ || ratio_n_ == 0) return false;
  tma_due_ = false;
  const uint64_t ctc = packet.value;
  anchor_ = Anchor::exact;
  anchor_tsc_ = sub(tsc_, likely_fast_counter(packet.aux, ratio_n_, ratio_d_));
  elapsed_ = -static_cast<int64_t>(ctc & (period() - 1));
  last_mtc_ = static_cast<uint8_t>((ctc >> mtc_shift_) & 0xff);
  first_mtc_ = true;
  return true;
}

/// Returns the MTC periods since the last MTC, 0..255. After a TMA that lacks the upper bits of MTC's window, these are the MTC's own.
unsigned PtClock::mtc_step(uint8_t mtc) {
  const unsigned known_bits = kTmaBits - mtc_shift_;
  if (first_mtc_ && known_bits < 8) {
    const unsigned mask = (1U << known_bits) - 1;
    unsigned step = (mtc - unsigned{last_mtc_}) & mask;
    if (step == mask && mask > 1) step = 0xff;  // slipped by one
    last_mtc_ = static_cast<uint8_t>(mtc - step);
    return step;
  }
  return (mtc - unsigned{last_mtc_}) & 0xff;
}

bool PtClock::on_mtc(uint8_t mtc, bool beside_cyc) {
  has_mtc_ = true;
  if (!known_ || ratio_n_ == 0) return false;
  if (anchor_ == Anchor::none) {  // no TMA: count edges from here
    anchor_ = Anchor::counted;
    anchor_tsc_ = tsc_;
    elapsed_ = 0;
    last_mtc_ = mtc;
    first_mtc_ = false;
    latest_ = lost_ ? kTscMax.value : add(edge(static_cast<int64_t>(period() * kPlausibleSteps)), 1);
    calibrating_ = false;
    return true;
  }
  const bool resumes = std::exchange(is_short_, false);  // it may have waited for the end of the overflow, up to the next edge
  if (resumes) lost_ = false;
  const unsigned step = mtc_step(mtc);
  const auto ticks = static_cast<int64_t>(period());
  const bool slipped = first_mtc_ && step > 256 - kSlipSteps;
  elapsed_ += ticks * (slipped ? static_cast<int64_t>(step) - 256 : static_cast<int64_t>(step));
  last_mtc_ = mtc;
  if (step > 1 && !slipped) ++holes_;
  if (!slipped && step == 0 && !first_mtc_) lost_ = true;
  first_mtc_ = false;

  const uint64_t moment = edge(elapsed_);
  // A counted anchor is a TSC somewhere in the MTC period before the first edge.
  const uint64_t width = anchor_ == Anchor::counted ? edge(elapsed_ + ticks * static_cast<int64_t>(kPlausibleSteps)) - moment : 0;
  const bool stale = moment < earliest_;  // the edge is before a time that the stream has already passed
  earliest_ = std::max(earliest_, sub(moment, 1));
  tsc_ = std::max({tsc_, moment, earliest_});
  const unsigned late = stale ? kPlausibleSteps : resumes ? 1 : 0;
  latest_ = lost_ ? kTscMax.value
                  : add(late != 0 ? std::max(edge(elapsed_ + ticks * static_cast<int64_t>(late)), moment + width) : moment + width, 2);
  latest_ = std::max(latest_, tsc_);
  if (anchor_ != Anchor::exact || late != 0 || lost_) {
    calibrating_ = false;
    if (beside_cyc) ref_lo_ = std::max(ref_lo_, earliest_);
    return true;
  }
  if (beside_cyc) {
    ref_tsc_ = tsc_;
    ref_lo_ = earliest_;
    ref_hi_ = latest_;
  }
  calibrate(beside_cyc);
  return true;
}

/// Measures the ratio of TSC to CYC since the last CYC with a known time, if the current one has one.
void PtClock::calibrate(bool beside_cyc) {
  if (!beside_cyc) return;
  if (calibrating_ && cal_cycles_ >= kMinCalibrationCycles && tsc_ > cal_tsc_ && tsc_ - cal_tsc_ < (uint64_t{1} << 39)) {
    const uint64_t measured = ((tsc_ - cal_tsc_) << kRatioShift) / cal_cycles_;
    const uint64_t told = nominal_ != 0 && cbr_ != 0 ? (uint64_t{nominal_} << kRatioShift) / cbr_ : measured_ ? ratio_ : measured;
    // Ignore the measurement if the core slept or packets were lost: then more time passed per cycle than the ratio from CBR allows.
    if (measured < told + told / 4 && measured > told - told / 4) {
      ratio_ = measured;
      measured_ = true;
    }
  }
  calibrating_ = true;
  cal_tsc_ = tsc_;
  cal_cycles_ = 0;
}

bool PtClock::on_cyc(uint64_t cycles) {
  cycles_ = add(cycles_, cycles);
  cal_cycles_ = add(cal_cycles_, cycles);
  if (!known_) return false;
  const bool edges = anchor_ != Anchor::none && has_mtc_ && !lost_;
  if (edges && (due_elapsed_ != elapsed_ || due_anchor_ != anchor_tsc_)) {
    const auto ticks = static_cast<int64_t>(period());
    due_elapsed_ = elapsed_;
    due_anchor_ = anchor_tsc_;
    due_ = edge(elapsed_ + ticks);
    overdue_ = add(edge(elapsed_ + ticks * static_cast<int64_t>(kPlausibleSteps)), 2);
  }
  if (ratio_ == 0) {
    latest_ = edges ? std::max(latest_, overdue_) : kTscMax.value;
    ref_tsc_ = tsc_;
    ref_lo_ = earliest_;
    ref_hi_ = latest_;
    return true;
  }
  const uint64_t passed = scale(cycles, ratio_);
  const uint64_t blur = (passed >> kToleranceShift) + 1;
  uint64_t at = add(ref_tsc_, passed);
  uint64_t first = add(ref_lo_, sub(passed, blur));
  uint64_t last = kTscMax.value;
  if (edges) {  // no MTC came since the last one
    at = std::min(at, due_);
    first = std::min(first, due_);
    last = std::min(add(ref_hi_, add(passed, blur)), overdue_);
  }
  earliest_ = ref_lo_ = std::max(earliest_, first);
  tsc_ = ref_tsc_ = std::max({tsc_, at, earliest_});
  latest_ = ref_hi_ = std::max(last, tsc_);
  return true;
}

void PtClock::on_cbr(uint8_t ratio) {
  const bool changed = cbr_ != ratio;
  cbr_ = ratio;
  if (!changed || ratio == 0) return;
  calibrating_ = false;
  measured_ = false;
  ratio_ = nominal_ != 0 ? (uint64_t{nominal_} << kRatioShift) / ratio : 0;
}

void PtClock::on_short_loss() {
  // The first MTC after a TMA may need bits that the TMA lacks: its window is shorter.
  const bool counts = anchor_ != Anchor::none && (!first_mtc_ || mtc_shift_ + 8U <= kTmaBits);
  const bool is_short = counts && (!lost_ || is_short_);
  on_loss();
  is_short_ = is_short;
}

bool PtClock::on_overflow() {
  calibrating_ = false;
  lost_ = true;
  is_short_ = false;
  latest_ = ref_hi_ = kTscMax.value;
  return known_;
}

}  // namespace ptd::pt
