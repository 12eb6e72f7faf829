// Seams that lost bytes, by reason; TSCs that go back.
#include "recording/trace/lost_trace.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "decoder/pt/packet/packet_table.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd {
namespace {

constexpr std::array<std::pair<AuxBreak, const char*>, 4> kReasons = {{
    {AuxBreak::truncated, "the kernel's buffer was full (AUX flag TRUNCATED); record with a larger buffer (perf record -m ,SIZE)"},
    {AuxBreak::partial, "the processor did not trace everything (AUX flag PARTIAL)"},
    {AuxBreak::collision, "another sample overwrote it (AUX flag COLLISION)"},
    {AuxBreak::missing, "AUX records name bytes that the file does not contain, or bytes are damaged or out of order"},
}};

constexpr const char* kEmulatorStopped =
    "recording stopped there: the program or the emulator was killed, the disk was nearly full, or a limit was reached (record --emulate "
    "--max-size, ulimit -f)";

/// Whether the bytes before `seam` are missing only because the file gives them twice and differently.
bool is_conflict(const AuxStream& stream, const Seam& seam) {
  const auto& conflicts = stream.placed().conflicts;
  const bool at_end = seam.offset_bytes == stream.end_offset();
  return seam.why == AuxBreak::missing && std::any_of(conflicts.begin(), conflicts.end(), [&](const PlacedPayloads::Range& range) {
           return range.last == seam.offset_bytes || (at_end && range.first == seam.offset_bytes);
         });
}

/// Whether bytes are missing where the stream begins though it begins at offset 0: they are there and cannot be decoded.
bool is_begin(const AuxStream& stream, const Seam& seam) {
  return seam.why == AuxBreak::missing && seam.offset_bytes == 0 && stream.size_bytes() != 0;
}

}  // namespace

const char* reason_of(AuxBreak why, bool emulated) {
  if (emulated && why == AuxBreak::truncated) return kEmulatorStopped;
  const auto* const known = std::ranges::find(kReasons, why, &std::pair<AuxBreak, const char*>::first);
  return known == kReasons.end() ? "" : known->second;
}

std::vector<Finding> lost_trace_findings(const AuxStream& stream, bool emulated) {
  std::vector<Finding> findings;
  for (const auto& [why, ignored] : kReasons) {
    uint64_t places = 0, first = 0;
    Interval time;
    for (const Seam& seam : stream.seams()) {
      if (seam.why != why || is_conflict(stream, seam) || is_begin(stream, seam)) continue;
      const TimeNs from = stream.written_from(seam.offset_bytes), by = stream.written_by(seam.offset_bytes);
      const Interval here{std::min(from, by), std::max(from, by)};  // several records may end there: the first is before the last
      time = places == 0 ? here : hull(time, here);
      if (places++ == 0) first = seam.offset_bytes;
    }
    if (places == 0) continue;
    Finding& finding = findings.emplace_back();
    finding.kind = FindingKind::trace_lost;
    finding.time = time;
    finding.what = name_of(stream) + ": trace is missing at " + (places == 1 ? "" : std::to_string(places) + " places, the first ") +
                   "trace offset " + std::to_string(first) + ": " + reason_of(why, emulated);
  }
  return findings;
}

bool begins_with_psb(const AuxStream& stream) {
  constexpr uint64_t kMostBefore = 64;
  std::vector<std::byte> scratch;
  const Bytes bytes = stream.read(stream.begin_offset(), stream.begin_offset() + kMostBefore + pt::kPsbBytes, scratch);
  return pt::find_psb(bytes, 0) < bytes.size();
}

std::vector<Finding> begin_findings(const AuxStream& stream, const SegmentIndex& index, const char* sync) {
  std::vector<Finding> findings;
  if (stream.size_bytes() == 0) return findings;
  const auto first = index.next(0);
  const std::vector<Seam>& seams = stream.seams();
  if (first && (seams.empty() || !is_begin(stream, seams.front()))) return findings;
  Finding& finding = findings.emplace_back();
  finding.kind = FindingKind::trace_lost;
  finding.time = {kTimeMin, first ? stream.written_by(first->offset_bytes) : stream.written_by(stream.end_offset())};
  finding.what = name_of(stream) + ": ";
  if (first) {
    const std::string bytes = first->offset_bytes == 0 ? "bytes" : std::to_string(first->offset_bytes) + " bytes";
    finding.what +=
        std::string("the trace does not begin with its ") + sync + " packet: its first " + bytes + " are damaged, and not decoded";
  } else {
    finding.what +=
        "none of its " + std::to_string(stream.size_bytes()) + " bytes of trace is decoded: they contain no " + sync + " packet";
  }
  return findings;
}

std::vector<Finding> placement_findings(const AuxStream& stream) {
  const PlacedPayloads& placed = stream.placed();
  std::vector<Finding> findings;
  const auto add = [&](FindingKind kind, uint64_t first, uint64_t last, const std::string& what) {
    Finding& finding = findings.emplace_back();
    finding.kind = kind;
    finding.time = {stream.written_from(first), stream.written_by(last)};
    finding.what = name_of(stream) + ": " + what;
  };
  if (!placed.conflicts.empty()) {
    uint64_t bytes = 0;
    for (const auto& [first, last] : placed.conflicts) bytes += last - first;
    const uint64_t first = placed.conflicts.front().first;
    add(FindingKind::trace_lost, first, placed.conflicts.back().last,
        "AUXTRACE records overlap and contradict each other: two versions of " + std::to_string(bytes) +
            " bytes of trace, from trace offset " + std::to_string(first) + " on; neither is decoded");
  }
  if (placed.doubled_bytes != 0)
    add(FindingKind::bad_record, placed.first_doubled, stream.end_offset(),
        "AUXTRACE records overlap: " + std::to_string(placed.doubled_bytes) + " bytes of trace are in the file twice, from trace offset " +
            std::to_string(placed.first_doubled) + " on; they are decoded once");
  if (placed.late_payloads != 0 && placed.doubled_bytes == 0)
    add(FindingKind::bad_record, placed.first_late, stream.end_offset(),
        std::to_string(placed.late_payloads) + " AUXTRACE record" + (placed.late_payloads == 1 ? " is" : "s are") +
            " out of order, the first at trace offset " + std::to_string(placed.first_late) +
            "; the trace is decoded in order of its offsets");
  return findings;
}

namespace {

// Whether the segment of `second` is a copy of that of `first`, the PSB before it: no two PSBs have the same TSC and crystal clock.
bool is_copy(const AuxStream& stream, const SegmentIndex& index, const PsbEntry& first, const PsbEntry& second) {
  if (!first.has_tma || !second.has_tma || first.ctc != second.ctc || first.fast != second.fast) return false;
  const auto next = index.next(second.offset_bytes + 1);
  const uint64_t size = second.offset_bytes - first.offset_bytes;
  const uint64_t rest = (next ? next->offset_bytes : stream.end_offset()) - second.offset_bytes;
  std::vector<std::byte> scratch_first, scratch_second;
  const Bytes a = stream.read(first.offset_bytes, first.offset_bytes + std::min(size, rest), scratch_first);
  const Bytes b = stream.read(second.offset_bytes, second.offset_bytes + std::min(size, rest), scratch_second);
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

}  // namespace

std::vector<Finding> order_findings(const AuxStream& stream, const SegmentIndex& index, const SegmentTiming& timing,
                                    const std::function<void(uint64_t offset)>& visit) {
  constexpr uint64_t kMostBack = uint64_t{1} << 32;
  constexpr uint64_t kSkew = uint64_t{1} << 14;  // between the TSCs of two processors on which a thread ran
  std::vector<Finding> findings;
  if (!timing.use_time) return findings;
  const uint64_t least_back = stream.cpu < 0 ? kSkew : 0;
  uint64_t places = 0;
  std::optional<PsbEntry> before, first;
  Interval time;
  for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) {
    visit(entry->offset_bytes);
    const bool is_ordered = before && before->has_tsc && entry->has_tsc && !before->in_guest && !entry->in_guest;
    const uint64_t back = is_ordered ? (before->tsc - entry->tsc) & ClockRatio::kTscMask : 0;
    const Seam* seam = before ? stream.seam_after(before->offset_bytes) : nullptr;
    const bool is_joined = seam == nullptr || seam->offset_bytes > entry->offset_bytes;
    const bool goes_back = back > least_back && back < kMostBack;
    if (is_joined && (goes_back || (is_ordered && back == 0 && is_copy(stream, index, *before, *entry)))) {
      const Interval here = timing.time.to_interval(Tsc{entry->tsc}, Tsc{before->tsc});
      time = places == 0 ? here : hull(time, here);
      if (places++ == 0) first = entry;
    }
    before = entry;
  }
  if (places == 0) return findings;
  Finding& finding = findings.emplace_back();
  finding.kind = FindingKind::clock_contradicts;
  finding.time = time;
  finding.what = name_of(stream) + ": the TSC goes back or repeats at " +
                 (places == 1 ? "" : std::to_string(places) + " PSB packets, the first at ") + "trace offset " +
                 std::to_string(first->offset_bytes) + ": segments of the trace are swapped or doubled";
  return findings;
}

}  // namespace ptd
