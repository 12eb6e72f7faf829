// What a trace's producer was: cpu, its errata, clocks and the options that change meaning.
#pragma once

#include <cstdint>
#include <string>

#include "image/base/time_conversion.h"
#include "image/base/types.h"

namespace ptd::pt {

struct CpuId {
  uint16_t family = 0;  ///< 0: not known; no errata are then worked around
  uint8_t model = 0;
  uint8_t stepping = 0;
  friend constexpr bool operator==(const CpuId&, const CpuId&) = default;
};

/// Named defects of processors that change how packets must be read. Source: Intel specification updates.
struct Errata {
  bool bdm70 : 1 = false;   ///< PSB+ may hold a FUP although tracing is off
  bool bdm64 : 1 = false;   ///< a transaction abort or commit in a filter region may lose its FUP/TIP
  bool skd007 : 1 = false;  ///< CYC or TSC/MTC may be out of order / OVF lost
  bool skd010 : 1 = false;  ///< FUP may miss after OVF
  bool skd022 : 1 = false;  ///< VM entry with tracing on may emit a second PIP
  bool skl014 : 1 = false;  ///< TIP.PGD has no ip on a direct branch out of the filter region
  bool skl168 : 1 = false;  ///< no TIP.PGE after OVF...
  bool apl11 : 1 = false;   ///< OVF is not followed by FUP
  bool apl12 : 1 = false;   ///< FUP with TIP.PGD/OVF oddity
  bool skz84 : 1 = false;   ///< CYC/MTC lost
};
/// The errata of a cpu, from the table in errata.cc.
[[nodiscard]] Errata errata_of(CpuId cpu);

/// Whether near returns may be compressed to a TNT bit (IA32_RTIT_CTL.DisRETC == 0).
enum class ReturnCompression : uint8_t { unknown, on, off };

struct Config {
  CpuId cpu;
  Errata errata;
  ReturnCompression return_compression = ReturnCompression::unknown;
  uint8_t mtc_period = 0;          ///< IA32_RTIT_CTL.MTCFreq: an MTC each 2^mtc_period CTC ticks
  uint32_t tsc_ctc_ratio_n = 0;    ///< CPUID.15H:EBX (TSC ticks per CTC tick numerator); 0: unknown
  uint32_t tsc_ctc_ratio_d = 0;    ///< CPUID.15H:EAX
  uint8_t max_nonturbo_ratio = 0;  ///< nominal frequency ratio, for CBR; 0: unknown
  bool has_tsc = true, has_mtc = false, has_cyc = false;
  bool address_filter = false;     ///< an ip filter was on (matters for SKL014)
  TimeConversion time;
  ExecMode initial_mode = ExecMode::bits64;  ///< until the first MODE.Exec
};

}  // namespace ptd::pt
