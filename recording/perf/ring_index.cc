// RingIndex: see ring_index.h.
#include "recording/perf/ring_index.h"

#include "perfio/format/wire.h"

namespace ptd {

// struct perf_record_id_index: nr, then id, idx, cpu and tid of each event, u64 each; idx is the number of the ring. One may be split over
// several records. machine_pid and vcpu of each, u64 each, may follow after the `nr` entries: perf inject --guest-data writes them.
void RingIndex::add(const perfio::Record& record) {
  constexpr size_t kMostEvents = 1U << 20;
  if (record.type != perfio::kRecordIdIndex) return;
  perfio::Cursor in(record.raw);
  in.skip(perfio::kRecordHeaderBytes);
  constexpr uint64_t kEntryBytes = 32, kMachineBytes = 16;
  const uint64_t count = in.u64();
  const bool with_machines = count <= in.remaining() && count * (kEntryBytes + kMachineBytes) == in.remaining();
  perfio::Cursor machines = in;
  if (with_machines) machines.skip(count * kEntryBytes);
  for (uint64_t left = count; left > 0 && rings_.size() < kMostEvents; --left) {
    const uint64_t id = in.u64(), ring = in.u64(), cpu = in.u64(), tid = in.u64();
    if (!in.ok()) return;
    Ring entry{ring, static_cast<int32_t>(cpu), static_cast<int32_t>(tid)};
    if (with_machines) {
      entry.machine_pid = static_cast<int32_t>(machines.u64());
      entry.vcpu = static_cast<int32_t>(machines.u64());
    }
    if (entry.machine_pid > 0) entry.number = number_of_guest_ring(entry, id);
    if (id != 0) rings_[id] = entry;
  }
}

// A guest numbers its rings as the host does, from 0. Where the guest's cpu is unknown, each event counts as a ring: its latest record is
// never later than the ring's, so that times of lost records are too long rather than too short.
uint64_t RingIndex::number_of_guest_ring(const Ring& ring, uint64_t id) {
  constexpr uint64_t kGuestRings = uint64_t{1} << 32;
  const uint64_t own = ring.vcpu >= 0 ? ring.number : id;
  return guest_rings_.try_emplace({ring.machine_pid, ring.vcpu, own}, kGuestRings + guest_rings_.size()).first->second;
}

const RingIndex::Ring* RingIndex::find(uint64_t id) const {
  const auto found = rings_.find(id);
  return found == rings_.end() ? nullptr : &found->second;
}

RingIndex::StreamKey RingIndex::stream_of(const perfio::SampleId& sample, bool per_cpu) const {
  const Ring* ring = find(sample.id);
  const int32_t cpu = ring != nullptr ? ring->cpu : per_cpu ? sample.cpu : -1;
  if (cpu >= 0) return {cpu, -1};
  return {-1, ring != nullptr && ring->tid > 0 ? ring->tid : sample.tid};
}

}  // namespace ptd
