// RingIndex: see ring_index.h.
#include "recording/perf/ring_index.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ptd {

// struct perf_record_id_index: nr, then id, idx, cpu and tid of each event, u64 each; idx is the number of the ring. One may be split over
// several records. More may follow after the `nr` entries (machine_pid and vcpu of each).
void RingIndex::add(Bytes record) {
  constexpr size_t kMostEvents = 1U << 20, kCountAt = 8, kFirstAt = 16, kEntryBytes = 32;
  if (record.size() < kFirstAt) return;
  uint64_t count = 0;
  std::memcpy(&count, record.data() + kCountAt, sizeof count);
  count = std::min<uint64_t>(count, (record.size() - kFirstAt) / kEntryBytes);
  for (size_t at = kFirstAt; count > 0 && rings_.size() < kMostEvents; at += kEntryBytes, --count) {
    std::array<uint64_t, 3> id_ring_cpu{};
    std::memcpy(id_ring_cpu.data(), record.data() + at, sizeof id_ring_cpu);
    if (id_ring_cpu[0] != 0) rings_[id_ring_cpu[0]] = {id_ring_cpu[1], static_cast<int32_t>(id_ring_cpu[2])};
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
