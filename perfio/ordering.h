// Sorts records by time with bounded memory, using the guarantees of FINISHED_ROUND.
//
//   ring 0:  1   4        7 8   |         <- | is FINISHED_ROUND: whatever a ring still holds was written after the last time that the
//   ring 1:    2    5 6         |  9         *previous* round had seen, so up to that time nothing more can come
//
// Invariant: a buffered record has a later time than every delivered one, unless it came late (counted).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "perfio/perf_reader.h"
#include "perfio/raw_stream.h"

namespace ptd::perfio {

/// Buffers records and delivers them in time order. Equal times keep the order in which they were added.
class RecordQueue {
 public:
  using Deliver = std::function<bool(const RawRecord&)>;

  RecordQueue(const ReadLimits& limits, ReadDamage& damage, Deliver deliver)
      : limits_(limits), damage_(&damage), deliver_(std::move(deliver)) {}

  /// All calls return false once a delivery has returned false.
  bool add(uint64_t time, const RawRecord& record);
  /// Processes a FINISHED_ROUND: delivers up to the latest time of the previous round.
  bool finish_round();
  /// Delivers everything up to `time`.
  bool flush_until(uint64_t time);
  bool flush_all() { return flush_until(~0ULL); }
  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t time = 0;
    RawRecord record;
    std::vector<std::byte> own;  ///< copy of a transient record
  };
  void sort();
  bool deliver_first(size_t count);

  ReadLimits limits_;
  ReadDamage* damage_;
  Deliver deliver_;
  std::vector<Entry> entries_;
  size_t sorted_ = 0;  ///< entries before this are in order
  uint64_t own_bytes_ = 0;
  uint64_t latest_ = 0;       ///< latest time added
  uint64_t round_limit_ = 0;  ///< latest_ at the previous FINISHED_ROUND
  uint64_t delivered_ = 0;    ///< latest time delivered
  bool overflowed_ = false;
};

}  // namespace ptd::perfio
