// Arm timestamps inside segments that contradict others.
#include "recording/trace/timestamp_findings.h"

#include <algorithm>
#include <utility>

#include "decoder/arm/packet/timestamps.h"

namespace ptd {

std::vector<Finding> timestamp_findings(const AuxStream& stream, const SegmentIndex& index, const SegmentTiming& timing,
                                        const arm::TraceConfig& config, const std::function<void(uint64_t offset)>& visit) {
  std::vector<Finding> findings;
  const bool has_own_packets = config.protocol == arm::Protocol::etmv4 || config.protocol == arm::Protocol::ete;
  if (!timing.use_time || !has_own_packets) return findings;
  uint64_t corrected = 0, unused = 0, early = 0, first = 0, before = 0;
  Interval time;
  std::vector<std::byte> scratch;
  for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) {
    visit(entry->offset_bytes);
    const AuxSegment segment = index.segment(*entry, timing, scratch);
    const arm::TimestampCheck check = arm::check_timestamps(segment.bytes, config, segment.timestamps, segment.tsc.use);
    if (entry->is_contradicted) {
      if (check.last != 0) before = check.last;
      continue;
    }
    // The segment does not know the last timestamp of the one before it.
    const bool is_early = check.repairs.empty() && entry->has_tsc && entry->tsc != 0 && entry->tsc < before && check.last >= before &&
                          arm::is_one_byte_off(entry->tsc, before, check.last);
    if (check.last != 0) before = check.last;
    if (check.repairs.empty() && !is_early) continue;
    const bool is_first = corrected + unused + early == 0;
    time = is_first ? segment.time : hull(time, segment.time);
    if (is_first) first = entry->offset_bytes + (is_early ? 0 : check.repairs.front().offset_bytes);
    early += is_early ? 1 : 0;
    const auto used = std::count_if(check.repairs.begin(), check.repairs.end(), [](const auto& repair) { return repair.use; });
    corrected += static_cast<uint64_t>(used);
    unused += check.repairs.size() - static_cast<uint64_t>(used);
  }
  const uint64_t all = corrected + unused + early;
  if (all == 0) return findings;
  Finding& finding = findings.emplace_back();
  finding.kind = FindingKind::clock_contradicts;
  finding.time = time;
  finding.what = name_of(stream) + ", trace offset " + std::to_string(first) + (all == 1 ? "" : " and later") +
                 ": timestamps contradict those around them:";
  const char* separator = " ";
  for (const auto& [count, what] :
       {std::pair(corrected, " corrected"), std::pair(unused, " not used"), std::pair(early, " before the one before")}) {
    if (count != 0) finding.what += std::exchange(separator, ", ") + std::to_string(count) + what;
  }
  return findings;
}

}  // namespace ptd
