// AUXTRACE_INFO of Intel PT (type 1), and the event's config.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "perfio/format/event_attr.h"
#include "perfio/format/records.h"

namespace ptd::perfio {

inline constexpr uint32_t kAuxtraceIntelPt = 1;
inline constexpr uint32_t kAuxtraceCsEtm = 3;

/// AUXTRACE_INFO of an Intel PT recording. Fields that are missing from a short record stay 0.
/// Source: tools/perf "util/intel-pt.h", the order of priv[]. `*_bit` and `*_bits` are masks on perf_event_attr.config.
struct IntelPtInfo {
  bool valid = false;       ///< type 1 and at least the fields up to per_cpu_mmaps are there
  uint32_t pmu_type = 0;    ///< perf_event_attr.type of the Intel PT event
  uint16_t time_shift = 0;  ///< TSC to perf ns: time_zero + (tsc * time_mult >> time_shift)
  uint32_t time_mult = 0;
  uint64_t time_zero = 0;
  bool cap_user_time_zero = false;  ///< the conversion above holds
  uint64_t tsc_bit = 0;
  uint64_t noretcomp_bit = 0;
  uint32_t have_sched_switch = 0;  ///< 0 none, 1 sched:sched_switch samples, 2 SWITCH, 3 SWITCH_CPU_WIDE
  uint64_t snapshot_word = 0;      ///< as in the record: 0 or 1, anything else is damage
  bool snapshot_mode = false;      ///< payloads of one stream may overlap
  bool per_cpu_mmaps = false;      ///< streams are per cpu; else per thread. See has_cpu_rings()
  uint64_t mtc_bit = 0;
  uint64_t mtc_freq_bits = 0;
  uint32_t tsc_ctc_ratio_n = 0;  ///< CPUID.15H:EBX
  uint32_t tsc_ctc_ratio_d = 0;  ///< CPUID.15H:EAX
  uint64_t cyc_bit = 0;
  uint8_t max_nonturbo_ratio = 0;  ///< P1 in units of the bus clock; 0 unknown
  std::string filter;              ///< address filter as given to the kernel, may be empty
  bool cap_event_trace = false;    ///< the cpu can write CFE and EVD packets

  /// Returns whether trace is recorded in rings of cpus, not of threads; true if the record does not tell.
  [[nodiscard]] bool has_cpu_rings() const { return !valid || per_cpu_mmaps; }
};

/// The features that the config of the Intel PT event enables.
struct IntelPtConfig {
  bool valid = false;  ///< an event with the PMU's type exists
  uint32_t attr_index = 0;
  uint64_t config = 0;
  bool branch = true;  ///< flow packets; with the pass-through bit clear they are always on
  bool tsc = false, mtc = false, cyc = false, ptwrite = false, event_trace = false, tnt_disabled = false;
  bool return_compression = true;  ///< noretcomp is off
  uint8_t mtc_period = 0;          ///< MTCFreq: an MTC packet every 2^mtc_period ticks of the crystal clock
  uint8_t cyc_threshold = 0;       ///< CycThresh
  uint8_t psb_period = 0;          ///< PSBFreq
};

/// Never fails: `valid` is false for a record that is not Intel PT's or too short.
[[nodiscard]] IntelPtInfo parse_intel_pt_info(const AuxtraceInfoRecord& record);
/// Reads the first attr of the PMU's type with the masks of `info`, or those of current kernels if the record has none.
[[nodiscard]] IntelPtConfig intel_pt_config(const IntelPtInfo& info, const std::vector<EventAttr>& attrs);
/// Replaces masks of the timing bits that are not those of the intel_pt PMU, which are the same on all kernels; 0 stays: a short record has
/// none. Returns whether there was one.
[[nodiscard]] bool correct_masks(IntelPtInfo& info);
/// Replaces a PMU type that is not that of the Intel PT event, by PMU_MAPPINGS or the event's name. Returns whether it was wrong.
[[nodiscard]] bool correct_pmu_type(const std::vector<EventAttr>& attrs, const std::map<std::string, uint32_t>& pmu_types,
                                    IntelPtInfo& info);

}  // namespace ptd::perfio
