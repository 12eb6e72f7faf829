// Decodes the Intel PT form of AUXTRACE_INFO (layout: tools/perf util/intel-pt.h, INTEL_PT_PMU_TYPE ff.).
#include "perfio/format/auxtrace_pt.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

constexpr uint32_t kFirstDynamicType = 6;  // [perf_event.h] PERF_TYPE_MAX: smaller types are fixed, and the intel_pt PMU has none

// IA32_RTIT_CTL as the intel_pt PMU's format files map it onto config ([SDM] "IA32_RTIT_CTL MSR").
constexpr uint64_t kConfigPassThrough = 1ULL << 0;
constexpr uint64_t kConfigCyc = 1ULL << 1;
constexpr uint64_t kConfigMtc = 1ULL << 9;
constexpr uint64_t kConfigTsc = 1ULL << 10;
constexpr uint64_t kConfigNoRetComp = 1ULL << 11;
constexpr uint64_t kConfigPtwrite = 1ULL << 12;
constexpr uint64_t kConfigBranch = 1ULL << 13;
constexpr uint64_t kConfigMtcPeriod = 0xfULL << 14;
constexpr uint64_t kConfigCycThreshold = 0xfULL << 19;
constexpr uint64_t kConfigPsbPeriod = 0xfULL << 24;
constexpr uint64_t kConfigEventTrace = 1ULL << 31;
constexpr uint64_t kConfigNoTnt = 1ULL << 55;

uint64_t field(uint64_t config, uint64_t mask) { return mask == 0 ? 0 : (config & mask) >> std::countr_zero(mask); }

}  // namespace

IntelPtInfo parse_intel_pt_info(const AuxtraceInfoRecord& record) {
  IntelPtInfo info;
  const auto& priv = record.priv;
  auto at = [&priv](size_t i) { return i < priv.size() ? priv[i] : 0; };
  if (record.type != kAuxtraceIntelPt || priv.size() < 10) return info;
  info.valid = true;
  info.pmu_type = static_cast<uint32_t>(at(0));
  info.time_shift = static_cast<uint16_t>(at(1));
  info.time_mult = static_cast<uint32_t>(at(2));
  info.time_zero = at(3);
  info.cap_user_time_zero = at(4) != 0;
  info.tsc_bit = at(5);
  info.noretcomp_bit = at(6);
  info.have_sched_switch = static_cast<uint32_t>(at(7));
  info.snapshot_word = at(8);
  info.snapshot_mode = at(8) == 1;
  info.per_cpu_mmaps = at(9) != 0;
  if (priv.size() > 14) {
    info.mtc_bit = at(10);
    info.mtc_freq_bits = at(11);
    info.tsc_ctc_ratio_n = static_cast<uint32_t>(at(12));
    info.tsc_ctc_ratio_d = static_cast<uint32_t>(at(13));
    info.cyc_bit = at(14);
  }
  info.max_nonturbo_ratio = static_cast<uint8_t>(at(15));
  const uint64_t filter_bytes = at(16);
  size_t next = 17;
  if (filter_bytes != 0 && filter_bytes <= 0x10000) {
    const auto words = static_cast<size_t>(filter_bytes / 8 + 1);
    if (words <= priv.size() - std::min(next, priv.size())) {
      info.filter = Cursor::text_of(std::as_bytes(std::span(priv).subspan(next, words)));
      next += words;
    } else {
      next = priv.size();
    }
  }
  info.cap_event_trace = at(next) != 0;
  return info;
}

IntelPtConfig intel_pt_config(const IntelPtInfo& info, const std::vector<EventAttr>& attrs) {
  IntelPtConfig out;
  for (size_t i = 0; info.valid && i < attrs.size(); ++i) {
    if (attrs[i].type != info.pmu_type) continue;
    const uint64_t config = attrs[i].config;
    auto mask = [](uint64_t given, uint64_t usual) { return given != 0 ? given : usual; };
    out.valid = true;
    out.attr_index = static_cast<uint32_t>(i);
    out.config = config;
    out.branch = (config & kConfigPassThrough) == 0 || (config & kConfigBranch) != 0;
    out.tsc = (config & mask(info.tsc_bit, kConfigTsc)) != 0;
    out.mtc = (config & mask(info.mtc_bit, kConfigMtc)) != 0;
    out.cyc = (config & mask(info.cyc_bit, kConfigCyc)) != 0;
    out.ptwrite = (config & kConfigPtwrite) != 0;
    out.event_trace = (config & kConfigEventTrace) != 0;
    out.tnt_disabled = (config & kConfigNoTnt) != 0;
    out.return_compression = (config & mask(info.noretcomp_bit, kConfigNoRetComp)) == 0;
    out.mtc_period = static_cast<uint8_t>(field(config, mask(info.mtc_freq_bits, kConfigMtcPeriod)));
    out.cyc_threshold = static_cast<uint8_t>(field(config, kConfigCycThreshold));
    out.psb_period = static_cast<uint8_t>(field(config, kConfigPsbPeriod));
    break;
  }
  return out;
}

bool correct_masks(IntelPtInfo& info) {
  bool wrong = false;
  for (const auto& [given, usual] : {std::pair(&info.tsc_bit, kConfigTsc), std::pair(&info.mtc_bit, kConfigMtc),
                                     std::pair(&info.cyc_bit, kConfigCyc), std::pair(&info.mtc_freq_bits, kConfigMtcPeriod)}) {
    wrong = wrong || (*given != 0 && *given != usual);
    if (*given != 0) *given = usual;
  }
  return wrong;
}

bool correct_pmu_type(const std::vector<EventAttr>& attrs, const std::map<std::string, uint32_t>& pmu_types, IntelPtInfo& info) {
  const std::string name = "intel_pt";
  const auto has_type = [&](uint32_t type) { return std::ranges::any_of(attrs, [&](const EventAttr& attr) { return attr.type == type; }); };
  if (!info.valid || attrs.empty()) return false;
  const auto mapped = pmu_types.find(name);
  const auto named = std::ranges::find_if(attrs, [&](const EventAttr& attr) { return attr.name.starts_with(name); });
  const uint32_t given = info.pmu_type;
  if (mapped != pmu_types.end() && has_type(mapped->second)) {
    info.pmu_type = mapped->second;
  } else if (named != attrs.end() && (given < kFirstDynamicType || !has_type(given))) {
    info.pmu_type = named->type;
  }
  return info.pmu_type != given || !has_type(given);
}

}  // namespace ptd::perfio
