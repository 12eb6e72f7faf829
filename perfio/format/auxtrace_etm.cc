// cs_etm's AUXTRACE_INFO.
#include "perfio/format/auxtrace_etm.h"

#include <algorithm>

namespace ptd::perfio {
namespace {

constexpr uint64_t kMagicEtmv3 = 0x3030303030303030, kMagicEtmv4 = 0x4040404040404040, kMagicEte = 0x5050505050505050;
constexpr uint64_t kLastVersion = 2;
constexpr size_t kHeaderWords = 3;
constexpr size_t kMaxCpus = 1U << 16;

// The order of a block's parameters.
enum Etmv3Param : size_t { kEtmcr, kEtmtraceidr, kEtmccer, kEtmidr, kEtmv3Params };
enum Etmv4Param : size_t { kConfigr, kTraceidr, kIdr0, kIdr1, kIdr2, kIdr8, kAuthstatus, kEtmv4Params, kEtmv4TsSource = kEtmv4Params };
enum EteParam : size_t { kDevarch = kEtmv4Params, kEteTsSource };

uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }

void fill(const uint64_t* params, size_t count, EtmCpu& cpu) {
  const auto at = [&](size_t index) { return index < count ? params[index] : 0; };
  if (cpu.kind == EtmKind::etmv3) {
    cpu.configr = low(at(kEtmcr));
    cpu.traceidr = low(at(kEtmtraceidr));
    cpu.idr1 = low(at(kEtmccer));
    cpu.idr0 = low(at(kEtmidr));
    return;
  }
  cpu.configr = low(at(kConfigr));
  cpu.traceidr = low(at(kTraceidr));
  cpu.idr0 = low(at(kIdr0));
  cpu.idr1 = low(at(kIdr1));
  cpu.idr2 = low(at(kIdr2));
  cpu.idr8 = low(at(kIdr8));
  const size_t source = cpu.kind == EtmKind::ete ? static_cast<size_t>(kEteTsSource) : static_cast<size_t>(kEtmv4TsSource);
  if (cpu.kind == EtmKind::ete) cpu.devarch = low(at(kDevarch));
  if (source < count) cpu.ts_source = static_cast<int64_t>(params[source]);
}

}  // namespace

EtmInfo parse_etm_info(const AuxtraceInfoRecord& record) {
  EtmInfo info;
  const std::vector<uint64_t>& words = record.priv;
  if (record.type != kAuxtraceCsEtm || words.size() < kHeaderWords || words[0] > kLastVersion) return info;
  info.version = words[0];
  info.pmu_type = low(words[1] >> 32);
  info.snapshot_word = words[2];
  info.snapshot_mode = words[2] == 1;
  const size_t cpus = std::min<size_t>(low(words[1]), kMaxCpus);
  size_t at = kHeaderWords;
  while (info.cpus.size() < cpus && words.size() - at >= 2) {
    EtmCpu cpu;
    const uint64_t magic = words[at];
    if (magic != kMagicEtmv3 && magic != kMagicEtmv4 && magic != kMagicEte) break;
    cpu.kind = magic == kMagicEtmv3 ? EtmKind::etmv3 : magic == kMagicEtmv4 ? EtmKind::etmv4 : EtmKind::ete;
    cpu.cpu = static_cast<int32_t>(low(words[at + 1]));
    at += 2;
    size_t count = cpu.kind == EtmKind::etmv3 ? size_t{kEtmv3Params}
                   : cpu.kind == EtmKind::ete ? size_t{kDevarch} + 1
                                              : size_t{kEtmv4Params};
    if (info.version >= 1) {
      if (at >= words.size()) break;
      const uint64_t told = words[at++];
      if (told > words.size()) break;
      count = static_cast<size_t>(told);
    }
    if (words.size() - at < count) break;
    fill(words.data() + at, count, cpu);
    at += count;
    info.cpus.push_back(cpu);
  }
  info.valid = !info.cpus.empty();
  return info;
}

EtmHwId parse_etm_hw_id(uint64_t hw_id) {
  EtmHwId id;
  id.valid = (hw_id >> 60) == 0;
  id.trace_id = static_cast<uint8_t>(hw_id & 0x7f);
  // Bits 63:60 and 59:56: version; from 0.1 on bits 39:8 name the sink.
  id.has_sink = (hw_id >> 56) >= 1;
  if (id.has_sink) id.sink = low((hw_id >> 8) & 0xffffffff);
  return id;
}

}  // namespace ptd::perfio
