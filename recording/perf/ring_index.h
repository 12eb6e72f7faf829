// RingIndex: which ring an event's records and trace are of, from ID_INDEX records. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "perfio/format/records.h"
#include "ptdecode/types.h"

namespace ptd {

/// A cpu has several rings if several events were opened on it.
class RingIndex {
 public:
  struct Ring {
    uint64_t number = 0;                 ///< no two rings have the same, of any machine
    int32_t cpu = -1;                    ///< -1: of a thread
    int32_t tid = -1;                    ///< of a guest's event: the host thread that runs its cpu
    int32_t machine_pid = 0, vcpu = -1;  ///< of a guest's event: the process that runs the guest, and the guest's cpu; 0: of the host
  };
  /// The cpu of a stream, or its thread; the other one is -1.
  using StreamKey = std::pair<int32_t, int32_t>;

  /// Adds the events of an ID_INDEX record; ignores other records.
  void add(const perfio::Record& record);
  /// Returns the ring of the event with this id; null if no record names it.
  [[nodiscard]] const Ring* find(uint64_t id) const;
  /// Returns the stream whose trace a sample holds. A ring of a thread keeps the thread's first number, also if it calls exec and gets
  /// another one. `per_cpu`: rings are of cpus, where no record names the sample's. Both -1: unknown.
  [[nodiscard]] StreamKey stream_of(const perfio::SampleId& sample, bool per_cpu) const;

 private:
  uint64_t number_of_guest_ring(const Ring& ring, uint64_t id);
  std::unordered_map<uint64_t, Ring> rings_;                                // by id of the event
  std::map<std::tuple<int32_t, int32_t, uint64_t>, uint64_t> guest_rings_;  // (process, guest cpu, number there) -> number
};

}  // namespace ptd
