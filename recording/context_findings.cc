// CoreSight context packets that switch records contradict.
#include "recording/context_findings.h"

#include <string>
#include <utility>

#include "decoder/arm/context_check.h"

namespace ptd {
namespace {

constexpr size_t kReported = 64;  // of a stream

/// Whether `next` is of the same packets as `wrong`.
bool continues(const arm::WrongContext& wrong, const arm::WrongContext& next) {
  return wrong.to_bytes == next.from_bytes && wrong.named_tid == next.named_tid;
}

std::string thread_text(int32_t tid) { return tid == 0 ? "the idle task" : "thread " + std::to_string(static_cast<uint32_t>(tid)); }

}  // namespace

std::vector<Finding> context_findings(const RecordingData& data, size_t stream, const std::function<void(uint64_t offset)>& visit) {
  std::vector<Finding> findings;
  const arm::TraceConfig& config = data.arm[stream].config;
  const AuxStream& of = data.streams[stream];
  if ((config.protocol != arm::Protocol::etmv4 && config.protocol != arm::Protocol::ete) || of.cpu < 0) return findings;
  const SegmentIndex& index = data.indexes[stream];
  const arm::KnownSwitches known{data.contexts, data.timeline.suspect_windows()};
  std::vector<std::byte> scratch;
  for (auto entry = index.next(0); entry && findings.size() < kReported; entry = index.next(entry->offset_bytes + 1)) {
    visit(entry->offset_bytes);
    const arm::CheckedSegment checked = arm::check_segment(index.segment(*entry, data.timing, scratch), config, data.arm_follow, known);
    const std::vector<arm::WrongContext>& wrong = checked.wrong_contexts;
    for (size_t i = 0; i < wrong.size() && findings.size() < kReported; ++i) {
      const arm::WrongContext& first = wrong[i];
      const bool is_one = i + 1 == wrong.size() || !continues(first, wrong[i + 1]);
      while (i + 1 < wrong.size() && continues(wrong[i], wrong[i + 1])) ++i;
      Finding& finding = findings.emplace_back();
      finding.kind = FindingKind::bad_record;
      finding.time = first.time;
      if (!is_one) finding.time = hull(first.time, wrong[i].time);
      const uint64_t from = entry->offset_bytes + first.from_bytes, to = entry->offset_bytes + wrong[i].to_bytes;
      finding.what = name_of(of) + ", trace offset " + std::to_string(from) + ": a context packet is wrong or missing: up to offset " +
                     std::to_string(to) + " the flow is of " + thread_text(first.named_tid) + " by the packets, and of " +
                     (is_one && first.tid >= 0 ? thread_text(first.tid) : "others") + " by the switch records; taken as of the latter";
    }
  }
  return findings;
}

}  // namespace ptd
