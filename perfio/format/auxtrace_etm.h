// AUXTRACE_INFO of CoreSight (cs_etm, type 3): one block of register values per cpu.
#pragma once

#include <cstdint>
#include <vector>

#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/records.h"

namespace ptd::perfio {

/// The trace unit of a cpu, from the magic number of its block.
enum class EtmKind : uint8_t { etmv3, etmv4, ete };

/// Values of one cpu's block. Source: tools/perf "util/cs-etm.h".
struct EtmCpu {
  EtmKind kind = EtmKind::etmv4;
  int32_t cpu = -1;
  uint32_t configr = 0;                             ///< TRCCONFIGR; ETMv3: ETMCR
  uint32_t traceidr = 0;                            ///< TRCTRACEIDR; bit 31 set, or 0x7f: the id comes with AUX_OUTPUT_HW_ID
  uint32_t idr0 = 0, idr1 = 0, idr2 = 0, idr8 = 0;  ///< TRCIDRn; ETMv3: idr0 = ETMIDR, idr1 = ETMCCER
  uint32_t devarch = 0;
  int64_t ts_source = -1;  ///< 1: timestamps are the virtual counter; -1: unknown
};

struct EtmInfo {
  bool valid = false;
  uint64_t version = 0;
  uint32_t pmu_type = 0;
  uint64_t snapshot_word = 0;  ///< as in the record: 0 or 1, anything else is damage
  bool snapshot_mode = false;
  std::vector<EtmCpu> cpus;
};

/// Parses header versions 0 (fixed blocks), 1 and 2 (blocks with a length). Never fails: a truncated or unknown block ends the list;
/// `valid` is false for a record that is not cs_etm's, has a later version, or has no block.
[[nodiscard]] EtmInfo parse_etm_info(const AuxtraceInfoRecord& record);

/// AUX_OUTPUT_HW_ID of cs_etm (linux/coresight-pmu.h).
struct EtmHwId {
  bool valid = false;  ///< false: of a later major version, whose fields mean something else
  uint8_t trace_id = 0;
  bool has_sink = false;
  uint32_t sink = 0;  ///< cpus that share a buffer share it
};
[[nodiscard]] EtmHwId parse_etm_hw_id(uint64_t hw_id);

/// Bits of PERF_RECORD_AUX flags: which format the PMU wrote.
inline constexpr uint64_t kAuxFormatMask = 0xff00;
inline constexpr uint64_t kAuxFormatRaw = 0x0100;

}  // namespace ptd::perfio
