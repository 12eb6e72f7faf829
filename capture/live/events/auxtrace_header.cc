// AUXTRACE_INFO of what this machine records: see pmu_terms.h.
#include <cstdlib>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "capture/live/events/pmu_terms.h"
#include "capture/live/kernel/kernel_memory.h"
#include "perfio/format/auxtrace_pt.h"

namespace ptd::live {
namespace {

using perfio::AuxtraceInfoRecord;

uint64_t read_number(const std::string& path, int base, uint64_t fallback) {
  const Result<std::string> text = read_text_file(path);
  if (!text || text->empty()) return fallback;
  return std::strtoull(text->c_str(), nullptr, base);
}

/// The order of tools/perf util/intel-pt.h, INTEL_PT_PMU_TYPE ff.
AuxtraceInfoRecord pt_info(const PmuEvent& event, const TraceSetup& setup, const perfio::TimeConvRecord* clock) {
  constexpr uint64_t kBySwitch = 2, kBySwitchCpuWide = 3;
  const Pmu& pmu = event.pmu;
  AuxtraceInfoRecord info;
  info.type = perfio::kAuxtraceIntelPt;
  const bool timed = clock != nullptr && clock->cap_user_time_zero;
  const uint64_t filter_bytes = setup.filter.empty() ? 0 : (setup.filter.size() / 8 + 1) * 8;
  info.priv = {pmu.type,
               timed ? clock->time_shift : 0,
               timed ? clock->time_mult : 0,
               timed ? clock->time_zero : 0,
               timed ? uint64_t{1} : 0,
               pmu.mask_of("tsc"),
               pmu.mask_of("noretcomp"),
               setup.whole_cpus ? kBySwitchCpuWide : kBySwitch,
               setup.snapshot ? uint64_t{1} : 0,
               setup.per_cpu ? uint64_t{1} : 0,
               pmu.mask_of("mtc"),
               pmu.mask_of("mtc_period"),
               setup.tsc_ctc_n,
               setup.tsc_ctc_d,
               pmu.mask_of("cyc"),
               read_number(pmu.folder + "/max_nonturbo_ratio", 10, 0),
               setup.filter.size()};
  std::string filter = setup.filter;
  filter.resize(static_cast<size_t>(filter_bytes));
  for (size_t at = 0; at < filter.size(); at += 8) {
    uint64_t word = 0;
    for (size_t i = 0; i < 8; ++i) word |= uint64_t{static_cast<unsigned char>(filter[at + i])} << (8 * i);
    info.priv.push_back(word);
  }
  const auto event_trace = pmu.caps.find("event_trace");
  info.priv.push_back(event_trace != pmu.caps.end() && event_trace->second != 0 ? 1 : 0);
  return info;
}

/// Bits of the event's config to bits of TRCCONFIGR ([Linux] coresight-etm4x-core.c, etm4_parse_event_config()).
uint64_t etm_config(const PmuEvent& event) {
  const auto on = [&](const char* term) { return event.pmu.get(event.spec, term) != 0; };
  uint64_t config = 0;
  if (on("branch_broadcast")) config |= 1U << 3;
  if (on("cycacc")) config |= 1U << 4;
  if (on("contextid") || on("contextid1")) config |= 1U << 6;
  if (on("contextid2")) config |= 1U << 7 | 1U << 15;
  if (on("timestamp")) config |= 1U << 11;
  if (on("retstack")) config |= 1U << 12;
  return config;
}

/// Version 1: one block a cpu, ETMv4 or ETE by TRCDEVARCH (tools/perf util/cs-etm.h).
Result<AuxtraceInfoRecord> etm_info(const PmuEvent& event, const TraceSetup& setup) {
  constexpr uint64_t kVersion = 1, kMagicEtmv4 = 0x4040404040404040, kMagicEte = 0x5050505050505050;
  constexpr uint64_t kArchMask = 0xffff, kArchEte = 0x5a13;
  AuxtraceInfoRecord info;
  info.type = perfio::kAuxtraceCsEtm;
  info.priv = {kVersion, uint64_t{event.pmu.type} << 32 | setup.cpus.size(), setup.snapshot ? uint64_t{1} : 0};
  for (const int32_t cpu : setup.cpus) {
    const std::string folder = event.pmu.folder + "/cpu" + std::to_string(cpu);
    const auto reg = [&](const char* name, uint64_t fallback) { return read_number(folder + "/" + name, 0, fallback); };
    constexpr uint64_t kAbsent = ~uint64_t{0};
    if (reg("trcidr/trcidr0", kAbsent) == kAbsent) {
      return Error{ErrorCode::no_hardware, "cs_etm: cpu " + std::to_string(cpu) + " has no ETMv4 or ETE in sysfs (" + folder + ")", 0};
    }
    const uint64_t devarch = reg("mgmt/trcdevarch", 0);
    const bool ete = (devarch & kArchMask) == kArchEte;
    const uint64_t source = reg("ts_source", kAbsent);
    constexpr uint64_t kFirstTraceId = 0x10;  // as kernels before 6.3 gave them; later ones tell with AUX_OUTPUT_HW_ID
    std::vector<uint64_t> words = {etm_config(event),           kFirstTraceId + static_cast<uint64_t>(cpu) * 2,
                                   reg("trcidr/trcidr0", 0),    reg("trcidr/trcidr1", 0),
                                   reg("trcidr/trcidr2", 0),    reg("trcidr/trcidr8", 0),
                                   reg("mgmt/trcauthstatus", 0)};
    if (ete) words.push_back(devarch);
    words.push_back(source);
    info.priv.insert(info.priv.end(), {ete ? kMagicEte : kMagicEtmv4, static_cast<uint64_t>(cpu), words.size()});
    info.priv.insert(info.priv.end(), words.begin(), words.end());
  }
  return info;
}

}  // namespace

Result<AuxtraceInfoRecord> make_auxtrace_info(const PmuEvent& event, const TraceSetup& setup, const perfio::TimeConvRecord* clock) {
  if (event.pmu.name == "intel_pt") return pt_info(event, setup, clock);
  if (event.pmu.name == "cs_etm") return etm_info(event, setup);
  return AuxtraceInfoRecord{};
}

void read_tsc_ratio(TraceSetup& setup) {
#if defined(__x86_64__)
  unsigned denominator = 0, numerator = 0, crystal = 0, unused = 0;
  if (__get_cpuid(0x15, &denominator, &numerator, &crystal, &unused) == 0) return;
  setup.tsc_ctc_n = numerator;
  setup.tsc_ctc_d = denominator;
#else
  (void)setup;
#endif
}

}  // namespace ptd::live
