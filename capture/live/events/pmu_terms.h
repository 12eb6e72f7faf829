// Parses PMU event names such as "intel_pt/cyc,mtc_period=3/u" and checks them against sysfs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perfio/format/records.h"
#include "perfio/ring/live_event.h"
#include "ptdecode/error.h"

namespace ptd::live {

/// The position of a term's bits: a config word (0 to 3) and the bit positions, lowest bit of the value first.
struct TermFormat {
  uint32_t word = 0;
  std::vector<uint32_t> bits;
};
/// "config:0-3,7", "config1:5" ([Linux] Documentation/ABI/testing/sysfs-bus-event_source-devices-format); no bits if it is not that.
[[nodiscard]] TermFormat parse_term_format(const std::string& text);

/// One PMU, from sysfs.
struct Pmu {
  std::string name;
  uint32_t type = 0;
  std::map<std::string, TermFormat> formats;  ///< files of format/
  std::map<std::string, uint64_t> caps;       ///< files of caps/ that hold a number; Intel PT's are hexadecimal
  std::map<std::string, uint64_t> sinks;      ///< cs_etm: files of sinks/
  std::vector<int32_t> cpus;                  ///< cpumask or cpus; empty: all
  std::string folder;

  /// Sets a term's bits. Returns false if the value does not fit or the term does not exist.
  bool set(perfio::EventSpec& spec, const std::string& term, uint64_t value) const;
  [[nodiscard]] uint64_t get(const perfio::EventSpec& spec, const std::string& term) const;
  [[nodiscard]] bool has(const std::string& term) const { return formats.contains(term); }
  /// Returns the bits of a term in config, for the headers of recordings; 0 if it does not exist.
  [[nodiscard]] uint64_t mask_of(const std::string& term) const;
};

/// Reads SYSFS/bus/event_source/devices/NAME. Errors: unsupported; the message lists the available PMUs.
[[nodiscard]] Result<Pmu> read_pmu(const std::string& name, const std::string& sysfs = "/sys");

struct PmuEvent {
  Pmu pmu;
  perfio::EventSpec spec;
  std::string text;  ///< as typed
};

/// Parses PMU/TERM[=VALUE],.../LEVELS. Levels: u, k, h; none: all. Terms that are not given have perf's defaults: for Intel PT tsc, branch,
/// pt, and MTC with period 3 or the next available one; for cs_etm timestamp and contextid. Values are checked against the width of the
/// term, and for Intel PT against caps/ (mtc, mtc_periods, psb_cyc, cycle_thresholds, psb_periods, ptwrite, power_event_trace, event_trace,
/// tnt_disable; [SDM] "Enumeration of Intel Processor Trace"). Errors: usage, with the supported values; unsupported if there is no such
/// PMU.
[[nodiscard]] Result<PmuEvent> parse_pmu_event(const std::string& text, const std::string& sysfs = "/sys");

/// Sets an event's levels: u, k, h; none: all. Errors: bad_option, without the option's name.
[[nodiscard]] Status set_levels(perfio::EventSpec& spec, const std::string& levels);
/// Returns an integer, which is hexadecimal with 0x (`base` 0) or if `base` is 16; nothing if the text is anything else.
[[nodiscard]] std::optional<uint64_t> parse_integer(const std::string& text, int base);

/// The setup of the trace, for AUXTRACE_INFO.
struct TraceSetup {
  bool snapshot = false, per_cpu = true;
  bool whole_cpus = false;  ///< events of all threads: SWITCH_CPU_WIDE tells of context switches, else SWITCH
  std::string filter;
  std::vector<int32_t> cpus;
  uint32_t tsc_ctc_n = 0, tsc_ctc_d = 0;  ///< CPUID.15H: EBX, EAX
};

/// Returns AUXTRACE_INFO of Intel PT or cs_etm, with the clock of Intel PT from `clock` if there is one. Other PMUs: type 0, no words.
/// Errors: unsupported if sysfs lacks values that cs_etm needs.
[[nodiscard]] Result<perfio::AuxtraceInfoRecord> make_auxtrace_info(const PmuEvent& event, const TraceSetup& setup,
                                                                    const perfio::TimeConvRecord* clock);
/// Stores CPUID.15H of this machine in `setup`.
void read_tsc_ratio(TraceSetup& setup);

}  // namespace ptd::live
