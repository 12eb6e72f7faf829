// Configuration of an Intel PT trace: cpu, errata, clocks and the options that change the meaning of packets.
#pragma once

#include <cstdint>

#include "ptdecode/export.h"
#include "ptdecode/time_conversion.h"
#include "ptdecode/types.h"

namespace ptd::pt {

struct CpuId {
  uint16_t family = 0;  ///< 0: not known; see errata_of()
  uint8_t model = 0;
  uint8_t stepping = 0;
  friend constexpr bool operator==(const CpuId&, const CpuId&) = default;
};

/// Named defects of processors that change how packets must be read, each under the first id that it was published with (Intel
/// specification updates; errata.cc has the ids by processor). docs/DIFFERENCES.md, "Errata", names the test of each.
struct Errata {
  bool bdm70 : 1 = false;   ///< the PSB+ before a TIP.PGE may contain FUP and MODE.Exec although tracing is off
  bool bdm64 : 1 = false;   ///< a TSX abort right after a branch: the branch's packet may have a wrong target
  bool skd007 : 1 = false;  ///< OVF may follow the first byte of a multi-byte CYC, in place of its other bytes
  bool skd010 : 1 = false;  ///< OVF may be followed by neither FUP nor TIP.PGE
  bool skd022 : 1 = false;  ///< a VM entry that clears TraceEn puts a FUP before its TIP.PGD
  bool skl014 : 1 = false;  ///< the TIP.PGD of a direct unconditional branch out of the filter region may have no ip
  bool skl168 : 1 = false;  ///< a CYC right before PSB may be missing, with its MTC
  bool apl11 : 1 = false;   ///< OVF may be followed by TIP.PGD (TraceEn or ContextEn cleared at the overflow)
  bool apl12 : 1 = false;   ///< OVF may be followed by a FUP although FilterEn is off
  bool skz84 : 1 = false;   ///< in a VMX guest with TSC offset or scaling, TMA is corrupt and a bogus byte follows it
  friend constexpr bool operator==(const Errata&, const Errata&) = default;
};
/// Returns the errata of a cpu, from the table in errata.cc, plus those that are worked around for every processor.
[[nodiscard]] PTD_API Errata errata_of(CpuId cpu);

/// Whether near returns may be compressed to a TNT bit (IA32_RTIT_CTL.DisRETC == 0).
enum class ReturnCompression : uint8_t { unknown, on, off };

/// Whether a TIP is written when its branch retires, after the pending branch bits, or may be deferred until a TNT is full
/// ([SDM] "Deferred TIPs", a property of the processor).
enum class TipOrder : uint8_t { unknown, prompt, may_be_deferred };

/// How a trace was made. A plain value: copies are independent.
struct Config {
  CpuId cpu;
  Errata errata;
  ReturnCompression return_compression = ReturnCompression::unknown;
  TipOrder tip_order = TipOrder::unknown;
  uint8_t mtc_period = 0;          ///< IA32_RTIT_CTL.MTCFreq: an MTC each 2^mtc_period CTC ticks
  uint32_t tsc_ctc_ratio_n = 0;    ///< CPUID.15H:EBX (TSC ticks per CTC tick numerator); 0: unknown
  uint32_t tsc_ctc_ratio_d = 0;    ///< CPUID.15H:EAX
  uint8_t max_nonturbo_ratio = 0;  ///< nominal frequency ratio, for CBR; 0: unknown
  bool has_tsc = true, has_mtc = false, has_cyc = false;
  /// false: recorded without branch packets (BranchEn is 0) or TNT packets (DisTNT). Only events are decoded then.
  bool has_flow = true;
  bool address_filter = false;  ///< an ip filter was active (relevant for SKL014)
  TimeConversion time;
  ExecMode initial_mode = ExecMode::bits64;  ///< until the first MODE.Exec
};

}  // namespace ptd::pt
