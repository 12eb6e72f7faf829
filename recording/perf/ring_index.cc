// RingIndex: see ring_index.h.
#include "recording/perf/ring_index.h"

#include "perfio/format/wire.h"

namespace ptd {

// struct perf_record_id_index: nr, then id, idx, cpu and tid of each event, u64 each; idx is the number of the ring. One may be split over
// several records. More may follow after the `nr` entries (machine_pid and vcpu of each).
void RingIndex::add(const perfio::Record& record) {
  constexpr size_t kMostEvents = 1U << 20;
  if (record.type != perfio::kRecordIdIndex) return;
  perfio::Cursor in(record.raw);
  in.skip(perfio::kRecordHeaderBytes);
  for (uint64_t left = in.u64(); left > 0 && rings_.size() < kMostEvents; --left) {
    const uint64_t id = in.u64(), ring = in.u64(), cpu = in.u64();
    in.skip(sizeof(uint64_t));  // tid
    if (!in.ok()) return;
    if (id != 0) rings_[id] = {ring, static_cast<int32_t>(cpu)};
  }
}

const RingIndex::Ring* RingIndex::find(uint64_t id) const {
  const auto found = rings_.find(id);
  return found == rings_.end() ? nullptr : &found->second;
}

RingIndex::StreamKey RingIndex::stream_of(const perfio::SampleId& sample, bool per_cpu) const {
  const Ring* ring = find(sample.id);
  const int32_t cpu = ring != nullptr ? ring->cpu : per_cpu ? sample.cpu : -1;
  return cpu >= 0 ? StreamKey(cpu, -1) : StreamKey(-1, sample.tid);
}

}  // namespace ptd
