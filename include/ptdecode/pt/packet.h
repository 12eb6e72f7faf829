// Intel PT packets as values. One table (packet_table.h) drives reading and writing.
#pragma once

#include <cstdint>

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd::pt {

// clang-format off
/// [SDM] "Packet Definitions". `bad` is an unknown or malformed packet; it is never written.
enum class PacketKind : uint8_t {
  pad, psb, psbend, tnt_short, tnt_long, tip, tip_pge, tip_pgd, fup, mode_exec, mode_tsx, pip, vmcs, cbr, tsc, mtc, tma,
  cyc, ovf, trace_stop, mnt, ptw, exstop, mwait, pwre, pwrx, bbp, bip, bep, cfe, evd, trig, bad,
};
// clang-format on
inline constexpr int kPacketKinds = static_cast<int>(PacketKind::bad) + 1;

/// IPBytes field of TIP, TIP.PGE, TIP.PGD and FUP ([SDM] "FUP/TIP IP Reconstruction"); 5 and 7 are reserved.
enum class IpBytes : uint8_t { suppressed = 0, update16 = 1, update32 = 2, sext48 = 3, update48 = 4, full64 = 6 };

/// One packet. `kind` determines which fields are used; the others are 0:
/// | kind                    | fields |
/// |---|---|
/// | pad psb psbend ovf trace_stop | none |
/// | tnt_short, tnt_long     | bits = number of branches (1..6, 1..47); value = the branches, 1 taken, the oldest in bit (bits-1) |
/// | tip tip_pge tip_pgd fup | ip_bytes; value = payload, zero-extended and still compressed (decompress_ip) |
/// | mode_exec               | kFlagCsL, kFlagCsD (never both), kFlagIf |
/// | mode_tsx                | kFlagInTx, kFlagAbort (never both) |
/// | pip                     | value = CR3 with bits 4:0 clear; kFlagNonRoot |
/// | vmcs                    | value = VMCS base address (bits 51:12) |
/// | cbr                     | value = core to bus ratio, 8 bits |
/// | tsc                     | value = TSC bits 55:0 |
/// | mtc                     | value = CTC bits [N+7:N], N = IA32_RTIT_CTL.MTCFreq |
/// | tma                     | value = CTC bits 15:0; aux = FastCounter, 9 bits |
/// | cyc                     | value = core cycles since the last CYC |
/// | mnt                     | value = 64 bits |
/// | ptw                     | bits = operand bytes, 4 or 8; value = operand; kFlagIp |
/// | exstop                  | kFlagIp |
/// | mwait                   | value = hints (EAX, 32 bits); aux = extensions (ECX, 32 bits) |
/// | pwre                    | value = payload, 16 bits (pwre_state, pwre_sub_state); kFlagHw repeats its bit 7 |
/// | pwrx                    | value = payload, 40 bits (pwrx_last, pwrx_deepest); extra = wake: 1 interrupt, 4 store, 8 autonomous |
/// | bbp                     | bits = bytes of an item's payload, 4 or 8; extra = type |
/// | bip                     | bits = id; extra = payload bytes, 4 or 8; value = payload |
/// | bep                     | kFlagIp |
/// | cfe                     | bits = type; extra = vector; kFlagIp |
/// | evd                     | bits = type; value = 64 bits |
/// | trig                    | extra = trigger bit vector; kFlagIp; kFlagMult; bits = 2 if value has an instruction count, else 0 |
struct Packet {
  PacketKind kind = PacketKind::bad;
  uint8_t size_bytes = 0;
  IpBytes ip_bytes = IpBytes::suppressed;
  uint8_t bits = 0;
  uint8_t flags = 0;
  uint8_t extra = 0;
  uint64_t value = 0;
  uint64_t aux = 0;
  friend constexpr bool operator==(const Packet&, const Packet&) = default;
};

/// Bits of Packet::flags.
inline constexpr uint8_t kFlagIp = 1;       ///< ptw, exstop, bep, cfe, trig: a FUP with the ip follows
inline constexpr uint8_t kFlagNonRoot = 2;  ///< pip.NR: in VMX non-root operation
inline constexpr uint8_t kFlagCsL = 4;      ///< mode.exec: CS.L and IA32_EFER.LMA
inline constexpr uint8_t kFlagCsD = 8;      ///< mode.exec: CS.D
inline constexpr uint8_t kFlagIf = 16;      ///< mode.exec: RFLAGS.IF (with event trace)
inline constexpr uint8_t kFlagInTx = 32;    ///< mode.tsx: in transaction
inline constexpr uint8_t kFlagAbort = 64;   ///< mode.tsx: transaction aborted
inline constexpr uint8_t kFlagHw = 128;     ///< pwre: entry initiated by hardware
inline constexpr uint8_t kFlagMult = 128;   ///< trig: other triggers fired that are not in the packet

/// Fields of the packed payloads of PWRE and PWRX ([SDM] "PWRE Packet", "PWRX Packet").
constexpr uint8_t pwre_state(const Packet& p) { return static_cast<uint8_t>((p.value >> 12) & 0xf); }     ///< resolved thread C-state
constexpr uint8_t pwre_sub_state(const Packet& p) { return static_cast<uint8_t>((p.value >> 8) & 0xf); }  ///< resolved thread sub C-state
constexpr uint8_t pwrx_last(const Packet& p) { return static_cast<uint8_t>((p.value >> 4) & 0xf); }       ///< last core C-state
constexpr uint8_t pwrx_deepest(const Packet& p) { return static_cast<uint8_t>(p.value & 0xf); }           ///< deepest core C-state

/// Sets `last_ip` to the full ip of an ip packet, given the previous one ([SDM] "IP Compression"). PSB clears the last ip (the caller sets
/// it to 0). Returns false if the payload is suppressed (last ip unchanged).
[[nodiscard]] inline bool decompress_ip(const Packet& packet, uint64_t& last_ip) {
  const uint64_t payload = packet.value;
  switch (packet.ip_bytes) {
    case IpBytes::update16:
      last_ip = (last_ip & ~uint64_t{0xffff}) | payload;
      return true;
    case IpBytes::update32:
      last_ip = (last_ip & ~uint64_t{0xffffffff}) | payload;
      return true;
    case IpBytes::sext48:
      last_ip = static_cast<uint64_t>(static_cast<int64_t>(payload << 16) >> 16);
      return true;
    case IpBytes::update48:
      last_ip = (last_ip & ~uint64_t{0xffffffffffff}) | payload;
      return true;
    case IpBytes::full64:
      last_ip = payload;
      return true;
    case IpBytes::suppressed:
      break;
  }
  return false;
}

/// Returns the name in the style of the SDM: "PSB", "TIP.PGE", "MODE.Exec".
[[nodiscard]] PTD_API const char* name(PacketKind kind);

}  // namespace ptd::pt
