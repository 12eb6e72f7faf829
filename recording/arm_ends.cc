// ArmEnds: adds the ends of each ring to an ArmPerf.
#include "recording/arm_ends.h"

#include <algorithm>

#include "recording/trace/segments.h"

namespace ptd {

void ArmEnds::on_record(const perfio::Record& record) {
  const auto* payload = std::get_if<perfio::AuxtraceRecord>(&record.payload);
  if (payload == nullptr) return arm_.on_record(record);
  const auto [ring, is_new] = rings_.try_emplace({payload->cpu, payload->cpu >= 0 ? -1 : payload->tid});
  if (is_new) ring->second.first = *payload;
  ring->second.last = *payload;
}

/// Adds the bytes [from, to) of a payload.
void ArmEnds::add(perfio::AuxtraceRecord payload, uint64_t from, uint64_t to) {
  payload.offset_bytes += from;
  payload.payload = payload.payload.subspan(from, to - from);
  payload.size_bytes = payload.payload.size();
  perfio::Record record;
  record.payload = std::move(payload);
  arm_.on_record(record);
}

std::vector<ArmEnds::StreamTime> ArmEnds::times(const perfio::EtmInfo& info, const TimeConversion& conversion) {
  constexpr uint64_t kFrameBytes = 16;  // frames are aligned to the begin of the ring
  for (const auto& [key, ring] : rings_) {
    const uint64_t first = ring.first.payload.size(), last = ring.last.payload.size();
    const bool is_one = ring.first.offset_bytes == ring.last.offset_bytes;
    const uint64_t head = std::min(first, kEndBytes), tail = last > kEndBytes ? (last - kEndBytes) / kFrameBytes * kFrameBytes : 0;
    const bool meet = is_one && tail <= head;
    add(ring.first, 0, meet ? first : head);
    if (!meet) add(ring.last, tail, last);
  }
  RecordingData data;
  data.decoder.config.time = conversion;
  arm_.finish(info, true, data);
  std::vector<StreamTime> times;
  for (size_t i = 0; i < data.streams.size() && data.arm_follow.use_time; ++i) {
    AuxStream& stream = data.streams[i];
    stream.finish();
    const SegmentIndex index(stream, data.arm[i].config, nullptr);
    auto first = index.next(0), last = index.previous(stream.end_offset());
    while (first && !first->has_tsc) first = index.next(first->offset_bytes + 1);
    while (last && !last->has_tsc) last = index.previous(last->offset_bytes);
    if (first && last) times.push_back({stream.cpu, stream.tid, {conversion.to_ns(Tsc{first->tsc}), conversion.to_ns(Tsc{last->tsc})}});
  }
  return times;
}

}  // namespace ptd
