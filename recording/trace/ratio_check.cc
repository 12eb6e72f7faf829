// RatioCheck: elapsed TSC ticks against elapsed ticks of the crystal clock.
#include "recording/trace/ratio_check.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ptdecode/pt/packet_reader.h"

namespace ptd {
namespace {

constexpr uint64_t kFarTicks = 1U << 12;   // of the crystal clock: an error of 0.1 % exceeds that of two TMAs
constexpr uint64_t kMostTicks = 1U << 22;  // beyond, a correct ratio that is not exact may explain any value
constexpr uint64_t kInexact = 1000;        // a ratio may be wrong by this part
constexpr uint64_t kErrorTicks = 2 * ClockRatio::kSlackTicks;
constexpr uint64_t kLeastRatio = 8;       // of processors: 20 and more
constexpr uint64_t kHost = ~uint64_t{0};  // in place of a VMCS

// The VMCS in a PSB+; none if it has none.
std::optional<uint64_t> vmcs_of(const AuxStream& stream, const PsbEntry& psb, std::vector<std::byte>& scratch) {
  pt::PacketReader reader(stream.read(psb.offset_bytes, psb.offset_bytes + psb.tail_bytes, scratch));
  pt::Packet packet;
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    if (packet.kind == pt::PacketKind::vmcs) return packet.value;
  }
  return {};
}

}  // namespace

// The ticks of the crystal clock between two PSBs by their TSCs.
uint64_t RatioCheck::crystal_ticks(const PsbEntry& from, const PsbEntry& to) const {
  const uint64_t ticks = ((to.tsc - to.fast) - (from.tsc - from.fast)) & ClockRatio::kTscMask;
  const auto counted = static_cast<unsigned __int128>(ticks) * ratio_.d / ratio_.n;
  return counted > kMostTicks ? kMostTicks + 1 : static_cast<uint64_t>(counted);
}

void RatioCheck::compare(const PsbEntry& from, const PsbEntry& to, Pairs& pairs) const {
  const uint64_t expected = crystal_ticks(from, to);
  pairs.distant += expected > kMostTicks ? 1 : 0;
  if (expected > kMostTicks) return;
  const auto excess = static_cast<uint16_t>(to.ctc - from.ctc - expected);
  const uint64_t off = std::min<uint64_t>(excess, ClockRatio::kCtcValues - excess);
  ++pairs.judged;
  pairs.wrong += off > kErrorTicks + expected / kInexact ? 1 : 0;
}

void RatioCheck::add(const AuxStream& stream, const SegmentIndex& index, const std::function<void(uint64_t offset)>& visit) {
  if (!ratio_.known()) return;
  std::map<uint64_t, Track> tracks;
  std::vector<std::byte> scratch;
  bool runs_guests = false;
  for (auto entry = index.next(0); entry && !runs_guests; entry = index.next(entry->offset_bytes + 1)) {
    visit(entry->offset_bytes);
    runs_guests = entry->in_guest;
  }
  for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) {
    visit(entry->offset_bytes);
    const bool is_known = !runs_guests || entry->in_root || entry->in_guest;
    if (!is_known || !entry->has_tsc || !entry->has_tma || entry->shift != 0) continue;
    const bool is_guest = entry->in_guest && !entry->in_root;
    const std::optional<uint64_t> machine = is_guest ? vmcs_of(stream, *entry, scratch) : kHost;
    if (!machine) continue;
    const auto [known, is_new] = tracks.try_emplace(*machine, Track{*entry, *entry});
    if (is_new) continue;
    auto& [start, before] = known->second;
    Clock& clock = is_guest ? guests_ : host_;
    compare(before, *entry, clock.near);
    before = *entry;
    if (crystal_ticks(start, *entry) < kFarTicks) continue;
    compare(start, *entry, clock.far);
    start = *entry;
  }
}

std::vector<Finding> RatioCheck::findings() const {
  const Clock& clock = host_.is_judged() || !guests_.is_judged() ? host_ : guests_;
  const Pairs& pairs = clock.near.refute() ? clock.near : clock.far;
  // With it, all PSBs seem to be far apart.
  const bool is_strange = pairs.judged == 0 && pairs.distant >= 2 && ratio_.n < kLeastRatio * ratio_.d;
  if (!pairs.refute() && !is_strange) return {};
  const std::string ratio = "the ratio of TSC and crystal clock (" + std::to_string(ratio_.n) + ":" + std::to_string(ratio_.d) + ") ";
  Finding finding;
  finding.kind = FindingKind::clock_contradicts;
  finding.time = {kTimeMin, kTimeMax};
  if (is_strange) {
    finding.what = ratio + "is not that of a processor: times between TSC packets are wrong";
  } else {
    finding.what = ratio + "contradicts " + std::to_string(pairs.wrong) + " of " + std::to_string(pairs.judged) +
                   " pairs of PSB packets: times between TSC packets are wrong";
  }
  return {std::move(finding)};
}

}  // namespace ptd
