// Configuration of one CoreSight trace source: the registers that determine how its packets are read.
#pragma once

#include <cstdint>

#include "ptdecode/export.h"

namespace ptd::arm {

enum class Protocol : uint8_t { none, etmv3, ptm, etmv4, ete, itm, stm };
[[nodiscard]] constexpr const char* name(Protocol protocol) {
  constexpr const char* kNames[] = {"unknown", "ETMv3", "PTM", "ETMv4", "ETE", "ITM", "STM"};
  return kNames[static_cast<uint8_t>(protocol)];
}

/// Values of the trace unit's registers; 0 if not known. A plain value. Meaning of the bits: [ETMv4] and [ETE] "Trace unit registers",
/// [ETMv3], [PFT].
struct PTD_API TraceConfig {
  Protocol protocol = Protocol::none;
  uint8_t trace_id = 0;                                              ///< CoreSight trace id, 7 bits
  uint32_t configr = 0;                                              ///< TRCCONFIGR; ETMv3, PTM: ETMCR; ITM, STM: TCR, TCSR
  uint32_t traceidr = 0;                                             ///< TRCTRACEIDR, ETMTRACEIDR
  uint32_t idr0 = 0x28000ea1, idr1 = 0x4100f403, idr2 = 0x00000488;  ///< TRCIDR0..2; ETMv3, PTM: idr0 = ETMIDR, idr1 = ETMCCER
  uint32_t idr8 = 0, idr9 = 0, idr10 = 0, idr11 = 0, idr12 = 0, idr13 = 0;
  uint32_t devarch = 0;    ///< TRCDEVARCH
  bool m_profile = false;  ///< the core is of the M profile: exceptions and returns differ
  bool v7_core = false;    ///< Armv7

  [[nodiscard]] constexpr uint8_t major() const { return devarch != 0 ? (devarch >> 12) & 0xf : (idr1 >> 8) & 0xf; }
  [[nodiscard]] constexpr uint8_t minor() const { return devarch != 0 ? (devarch >> 16) & 0xf : (idr1 >> 4) & 0xf; }
  [[nodiscard]] constexpr unsigned version() const { return major() * 16U + minor(); }  ///< 0x43: ETMv4.3; ETE is 0x50 and up
  [[nodiscard]] constexpr bool is_ete() const { return protocol == Protocol::ete; }

  [[nodiscard]] constexpr bool has_cycle_count() const { return (idr0 & 0x80) != 0; }
  /// TRCIDR0.COMMOPT: cycle count packets do not commit elements.
  [[nodiscard]] constexpr bool commit_opt1() const { return (idr0 & 0x20000000) != 0 && has_cycle_count(); }
  /// TRCIDR0.COMMTRANS: transaction starts are P0 elements if it is 0.
  [[nodiscard]] constexpr bool transaction_is_p0() const { return (idr0 & 0x40000000) == 0; }
  [[nodiscard]] constexpr bool has_q() const { return ((idr0 >> 15) & 3) != 0; }
  /// Conditional non-branch instructions are traced.
  [[nodiscard]] constexpr bool traces_conditions() const { return (idr0 & 0x40) != 0 && (configr & 0x700) != 0; }
  /// Data trace: loads or stores are P0 elements, or the instruction stream contains markers.
  [[nodiscard]] constexpr bool traces_data() const { return (idr0 & 0x18) == 0x18 && (configr & 6) != 0 && (configr & 0x30000) != 0; }
  [[nodiscard]] constexpr bool loads_are_p0() const { return (idr0 & 6) != 0 && (configr & 2) != 0; }
  [[nodiscard]] constexpr bool stores_are_p0() const { return (idr0 & 6) != 0 && (configr & 4) != 0; }
  /// ETMv4 and ETE.
  [[nodiscard]] constexpr bool has_timestamps() const { return (configr & 0x800) != 0; }
  [[nodiscard]] constexpr bool has_return_stack() const { return (configr & 0x1000) != 0; }
  [[nodiscard]] constexpr uint8_t context_id_bytes() const { return ((idr2 >> 5) & 0x1f) == 4 ? 4 : 0; }
  [[nodiscard]] constexpr uint8_t vmid_bytes() const {
    const unsigned size = (idr2 >> 10) & 0x1f;
    if (size == 1) return 1;
    if (version() <= 0x40) return 0;
    return size == 2 ? 2 : size == 4 ? 4 : 0;
  }
  [[nodiscard]] constexpr uint32_t cycle_mask() const { return (1U << (((idr2 >> 25) & 0xf) + 12)) - 1; }
  [[nodiscard]] constexpr uint32_t max_speculation() const { return idr8; }
  /// WFI and WFE are P0 instructions.
  [[nodiscard]] constexpr bool wait_is_p0() const { return (idr2 & 0x80000000) != 0 && version() >= 0x43; }
  /// VMID packets contain CONTEXTIDR_EL2, which identifies the process if the kernel runs at EL2.
  [[nodiscard]] constexpr bool vmid_is_context_el2() const { return (configr & 0x8000) != 0; }
};

}  // namespace ptd::arm
