// Records of cs_etm.
#include "capture/emulate/etm/etm_records.h"

#include "capture/emulate/etm/etm_encoder.h"
#include "perfio/format/auxtrace_etm.h"

namespace ptd::emulate {
namespace {

constexpr uint32_t kEtmType = 8;
// Masks of perf_event_attr.config (the kernel's sysfs format files of cs_etm).
constexpr uint64_t kConfigContextId = 1ULL << 14, kConfigTimestamp = 1ULL << 28, kConfigReturnStack = 1ULL << 29;
constexpr uint64_t kHeaderVersion = 1, kMagicEtmv4 = 0x4040404040404040, kMagicEte = 0x5050505050505050, kNoAuthstatus = 0,
                   kVirtualCounter = 1;
constexpr uint64_t kFirstTraceId = 0x10, kTraceIds = 0x60;  // each buffer has one source: ids may repeat

}  // namespace

perfio::EventAttr etm_attr() {
  perfio::EventAttr attr;
  attr.type = kEtmType;
  attr.config = kConfigContextId | kConfigTimestamp | kConfigReturnStack;
  attr.flags = 1;
  attr.name = "cs_etm//u";
  return attr;
}

perfio::AuxtraceInfoRecord etm_auxtrace_info(uint32_t cpus, bool ete) {
  perfio::AuxtraceInfoRecord info;
  info.type = perfio::kAuxtraceCsEtm;
  info.priv = {kHeaderVersion, uint64_t{kEtmType} << 32 | cpus, 0};
  for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
    std::vector<uint64_t> parameters = {EtmRegisters::kConfigr, kFirstTraceId + cpu % kTraceIds,
                                        EtmRegisters::kIdr0,    ete ? EtmRegisters::kEteIdr1 : EtmRegisters::kIdr1,
                                        EtmRegisters::kIdr2,    EtmRegisters::kIdr8,
                                        kNoAuthstatus};
    if (ete) parameters.push_back(EtmRegisters::kEteDevarch);
    parameters.push_back(kVirtualCounter);
    info.priv.insert(info.priv.end(), {ete ? kMagicEte : kMagicEtmv4, cpu, parameters.size()});
    info.priv.insert(info.priv.end(), parameters.begin(), parameters.end());
  }
  return info;
}

}  // namespace ptd::emulate
