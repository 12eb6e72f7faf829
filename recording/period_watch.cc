// PeriodWatch: pairs of a TMA and the MTC after it.
#include "recording/period_watch.h"

#include <algorithm>

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
  bool seen_tma = false;
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    if (packet.kind == pt::PacketKind::ovf || (seen_tma && packet.kind == pt::PacketKind::psb)) return;
    seen_tma |= packet.kind == pt::PacketKind::tma;
    if (packet.kind != pt::PacketKind::mtc || !seen_tma) continue;
    ++pairs_;
    for (size_t period = 0; period < kPeriods; ++period) {
      const uint64_t known = (uint64_t{1} << known_bits(period)) - 1;
      const uint64_t ticks = (packet.value - (uint64_t{psb.ctc} >> period)) & known;
      possible_[period] += ticks <= 3 ? 1 : 0;
      next_[period] += ticks == 1 ? 1 : 0;
    }
    return;
  }
}

std::optional<uint8_t> PeriodWatch::found() const {
  // A longer period has fewer known bits, so it may fit by chance.
  const auto fits = std::find(next_.begin(), next_.end(), pairs_);
  const auto period = static_cast<size_t>(fits - next_.begin());
  if (pairs_ < kLeastPairs || fits == next_.end() || pairs_ * known_bits(period) < kLeastBits) return {};
  return static_cast<uint8_t>(period);
}

std::optional<uint8_t> PeriodWatch::other_than(uint8_t period) const {
  if (period >= kPeriods || 4 * possible_[period] > pairs_) return {};
  return found();
}

}  // namespace ptd
