// The conversion from trace time to perf time in a recording. Private to recording.
#pragma once

#include <string>
#include <vector>

#include "image/source/record_times.h"
#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/records.h"
#include "perfio/perf_reader.h"
#include "ptdecode/finding.h"
#include "ptdecode/time_conversion.h"

namespace ptd {

/// Returns whether the records have another clock than the trace (-k). False if an emulator made the trace: its clock is that of the
/// records. Limitation: a file that is cut does not say who made it.
[[nodiscard]] bool uses_other_clock(const perfio::PerfReader& reader);

/// Collects what shows whether a conversion is right: the times of the records, and TSCs of the trace. Feed every record. Not thread-safe.
class ClockWitness {
 public:
  void on_record(const perfio::Record& record);
  /// Ends the records. Their times do not count if they are of another clock, or if records are missing.
  void finish(const perfio::PerfReader& reader);

  /// Returns the sum over all TSCs of how far `time` puts them outside the times of the records; each counts for at most a second.
  [[nodiscard]] uint64_t error_ns(const TimeConversion& time) const;
  /// Returns whether `time` puts all TSCs more than a second outside the times of the records.
  [[nodiscard]] bool refutes(const TimeConversion& time) const;
  /// Returns whether a time with bounds lies more than a millisecond outside the times of the records.
  [[nodiscard]] bool is_far(Interval time) const;
  /// Returns the largest difference between two conversions at a TSC of the trace.
  [[nodiscard]] uint64_t difference_ns(const TimeConversion& a, const TimeConversion& b) const;
  /// Returns `time`, but for TSCs of 56 bits if the processor's TSC has more or may get more: the times of the records give the upper bits,
  /// or if these are of another clock, the reference of an AUXTRACE record.
  [[nodiscard]] TimeConversion for_packets(const TimeConversion& time) const;
  [[nodiscard]] Interval trace_time(const TimeConversion& time) const;
  /// Returns the rest of a sentence on a conversion that puts the trace at other times than the records.
  [[nodiscard]] std::string told_apart(Interval trace) const;

 private:
  void add_trace(Bytes trace);
  [[nodiscard]] uint64_t outside_ns(const TimeConversion& time, uint64_t tsc) const;
  [[nodiscard]] bool knows() const { return !distrusted_ && has_aux_ && !tscs_.empty(); }

  RecordTimes records_;
  std::vector<uint64_t> tscs_;
  uint64_t payloads_ = 0;
  uint64_t reference_ = 0;  ///< the TSC when the first payload was read, by its record; 0: none
  bool has_aux_ = false, distrusted_ = false, is_of_other_clock_ = false;
};

/// A conversion, and the contradictions between its sources.
struct ChosenTime {
  TimeConversion time;  ///< not valid(): there is none
  std::vector<Finding> findings;
};

/// Chooses between the copies of the conversion in TIME_CONV (time_mult 0: none) and in AUXTRACE_INFO. perf fills both from one page of the
/// kernel, whose values stay the same while a machine with an invariant TSC runs. If they differ, the one that the records' times agree
/// with is used, else that of TIME_CONV.
[[nodiscard]] ChosenTime choose_time(const perfio::IntelPtInfo& info, const perfio::TimeConvRecord& record, const ClockWitness& witness);

}  // namespace ptd
