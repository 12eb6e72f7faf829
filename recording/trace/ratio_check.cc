// RatioCheck: elapsed TSC ticks against elapsed ticks of the crystal clock.
#include "recording/trace/ratio_check.h"

#include <algorithm>
#include <optional>

namespace ptd {
namespace {

constexpr uint64_t kFarTicks = 1U << 12;    // of the crystal clock: an error of 0.1 % exceeds that of two TMAs
constexpr uint64_t kMostTicks = 1U << 22;   // beyond, a correct ratio that is not exact may explain any value
constexpr uint64_t kInexact = 1000;         // a ratio may be wrong by this part
constexpr uint64_t kErrorTicks = 2 * ClockRatio::kSlackTicks;

}  // namespace

// The ticks of the crystal clock between two PSBs by their TSCs.
uint64_t RatioCheck::crystal_ticks(const PsbEntry& from, const PsbEntry& to) const {
  const uint64_t ticks = ((to.tsc - to.fast) - (from.tsc - from.fast)) & ClockRatio::kTscMask;
  const auto counted = static_cast<unsigned __int128>(ticks) * ratio_.d / ratio_.n;
  return counted > kMostTicks ? kMostTicks + 1 : static_cast<uint64_t>(counted);
}

void RatioCheck::compare(const PsbEntry& from, const PsbEntry& to, Pairs& pairs) const {
  const uint64_t expected = crystal_ticks(from, to);
  if (expected > kMostTicks) return;
  const auto excess = static_cast<uint16_t>(to.ctc - from.ctc - expected);
  const uint64_t off = std::min<uint64_t>(excess, ClockRatio::kCtcValues - excess);
  ++pairs.judged;
  pairs.wrong += off > kErrorTicks + expected / kInexact ? 1 : 0;
}

void RatioCheck::add(const SegmentIndex& index, const std::function<void(uint64_t offset)>& visit) {
  if (!ratio_.known()) return;
  std::vector<PsbEntry> timed;
  bool in_guest = false;
  for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) {
    visit(entry->offset_bytes);
    in_guest = in_guest || entry->in_guest;
    if (entry->has_tsc && entry->has_tma && entry->shift == 0 && !entry->in_guest) timed.push_back(*entry);
  }
  std::optional<PsbEntry> start, before;
  for (const PsbEntry& entry : timed) {
    if (in_guest && !entry.in_root) continue;  // it may be of a guest, whose TSC is another clock
    if (before) compare(*before, entry, near_);
    before = entry;
    if (!start) start = entry;
    if (crystal_ticks(*start, entry) < kFarTicks) continue;
    compare(*start, entry, far_);
    start = entry;
  }
}

std::vector<Finding> RatioCheck::findings() const {
  std::vector<Finding> findings;
  if (!near_.refute() && !far_.refute()) return findings;
  const Pairs& pairs = near_.refute() ? near_ : far_;
  Finding& finding = findings.emplace_back();
  finding.kind = FindingKind::clock_contradicts;
  finding.time = {kTimeMin, kTimeMax};
  finding.what = "the ratio of TSC and crystal clock (" + std::to_string(ratio_.n) + ":" + std::to_string(ratio_.d) +
                 ", from AUXTRACE_INFO) contradicts " + std::to_string(pairs.wrong) + " of " + std::to_string(pairs.judged) +
                 " pairs of PSB packets: times between TSC packets are wrong";
  return findings;
}

}  // namespace ptd
