// PeriodWatch: pairs of a TMA and the MTC after it.
#include "recording/period_watch.h"

#include <algorithm>
#include <utility>

#include "ptdecode/pt/packet_reader.h"

namespace ptd {
namespace {

/// Of the bits that an MTC gives, those that a TMA gives too.
size_t known_bits(size_t period) { return std::min<size_t>(8, 16 - period); }

}  // namespace

void PeriodWatch::look(const AuxStream& stream, const PsbEntry& psb) {
  if (!psb.has_tma || pairs_ >= kMostPairs || looks_ >= 4 * kMostPairs) return;
  ++looks_;
  pt::PacketReader reader(stream.read(psb.offset_bytes, psb.offset_bytes + kLookBytes, scratch_));
  pt::Packet packet;
  bool seen_psb = false;
  std::optional<uint64_t> ctc;  // of the TMA before
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    switch (packet.kind) {
      case pt::PacketKind::tma:
        ctc = packet.value & 0xffff;
        break;
      case pt::PacketKind::psb:
        if (std::exchange(seen_psb, true)) return;
        break;
      case pt::PacketKind::ovf:
      case pt::PacketKind::tip_pgd:
      case pt::PacketKind::tip_pge:
        ctc.reset();  // MTCs are missing
        break;
      case pt::PacketKind::mtc:
        has_mtcs_ = true;
        if (!ctc) break;
        add(*ctc, packet.value);
        return;
      default:
        break;
    }
  }
}

void PeriodWatch::add(uint64_t ctc, uint64_t mtc) {
  ++pairs_;
  for (size_t period = 0; period < kPeriods; ++period) {
    const uint64_t known = (uint64_t{1} << known_bits(period)) - 1;
    const uint64_t ticks = (mtc - (ctc >> period)) & known;
    possible_[period] += ticks <= 3 ? 1 : 0;
    next_[period] += ticks == 1 ? 1 : 0;
  }
}

std::optional<uint8_t> PeriodWatch::found() const {
  // That `fit` of n pairs fit by chance has a probability below 2^n * 2^-(known bits * fit). Longer periods have fewer known bits.
  const auto most = std::max_element(next_.begin(), next_.end());
  const size_t fit = *most, period = static_cast<size_t>(most - next_.begin()), choices_bits = fit == pairs_ ? 0 : pairs_;
  if (pairs_ < kLeastPairs || 4 * fit < 3 * pairs_ || fit * known_bits(period) < kLeastBits + choices_bits) return {};
  return static_cast<uint8_t>(period);
}

std::optional<uint8_t> PeriodWatch::other_than(uint8_t period) const {
  if (period >= kPeriods || 4 * possible_[period] > pairs_) return {};
  return found();
}

}  // namespace ptd
