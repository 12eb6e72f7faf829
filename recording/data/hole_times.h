// HoleTimes: bounds the times of the records that holes of a file swallowed. Private to recording.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// The records of a cpu are in order of time in the file, so those that a hole swallowed lie between its records before and after the hole.
/// Holes times cpus can be too many to store: each record takes O(log) time and no memory of its own, each hole and each cpu a constant.
/// Not thread-safe.
class HoleTimes {
 public:
  /// cpu -> time of its latest record.
  using CpuTimes = std::map<int32_t, TimeNs>;

  /// Adds a record of `cpu` that comes after the first `holes` holes of the file. `latest`: of the records before it. Ignored before any
  /// hole.
  void add(int32_t cpu, TimeNs time, size_t holes, const CpuTimes& latest);
  /// Returns when the records in each hole were written, except for holes at the end that no record follows: from the earliest of the cpus'
  /// latest times before it to the latest of their first times after it, or kTimeMax if a cpu has no record after it.
  [[nodiscard]] std::vector<Interval> windows() const;

 private:
  void open(const CpuTimes& latest);
  void raise(size_t first, size_t end, TimeNs time);
  [[nodiscard]] TimeNs raised(size_t hole) const;

  std::vector<TimeNs> first_;  // by hole
  /// The least times of cpus, as a heap. An entry may be out of date: the cpu's time is never less.
  std::vector<std::pair<TimeNs, int32_t>> least_;
  std::map<int32_t, size_t> closed_;  // cpu -> the number of holes before its latest record
  /// Times to which all holes of a block of 2^level holes are raised: [level][hole >> level].
  std::vector<std::vector<TimeNs>> raised_;
};

}  // namespace ptd
