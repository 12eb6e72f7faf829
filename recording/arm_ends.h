// ArmEnds: the first and last timestamps of CoreSight trace, read at the ends of its rings only. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "perfio/format/auxtrace_etm.h"
#include "perfio/format/records.h"
#include "ptdecode/time_conversion.h"
#include "recording/perf/arm_perf.h"

namespace ptd {

/// Not thread-safe.
class ArmEnds {
 public:
  /// What is read of each end of a ring. Trace units write a sync point each few KiB.
  static constexpr uint64_t kEndBytes = 256U << 10;
  struct StreamTime {
    int32_t cpu = -1, tid = -1;  ///< one of them is known
    Interval time;               ///< of its first and its last sync point with a timestamp
  };
  /// Payloads must stay valid until times().
  void on_record(const perfio::Record& record);
  /// Returns the times of streams that have timestamps of the kernel's clock. Call it once, after all records.
  [[nodiscard]] std::vector<StreamTime> times(const perfio::EtmInfo& info, const TimeConversion& conversion);

 private:
  struct Ring {
    perfio::AuxtraceRecord first, last;
  };
  void add(perfio::AuxtraceRecord payload, uint64_t from, uint64_t to);
  ArmPerf arm_;
  std::map<std::pair<int32_t, int32_t>, Ring> rings_;  // by cpu and thread
};

}  // namespace ptd
