// Intel PT packets as values. One table (packet_table.h) drives reading and writing.
#pragma once

#include <cstdint>

#include "image/base/types.h"

namespace ptd::pt {

/// [SDM] "Packet Definitions". `bad` is what no packet starts with or what is malformed; `end` is never written.
enum class PacketKind : uint8_t {
  pad, psb, psbend, tnt_short, tnt_long, tip, tip_pge, tip_pgd, fup, mode_exec, mode_tsx, pip, vmcs, cbr, tsc, mtc, tma,
  cyc, ovf, trace_stop, mnt, ptw, exstop, mwait, pwre, pwrx, bbp, bip, bep, cfe, evd, trig, bad,
};
inline constexpr int kPacketKinds = static_cast<int>(PacketKind::bad) + 1;

/// IPBytes field of TIP, TIP.PGE, TIP.PGD and FUP ([SDM] "FUP/TIP IP Compression"); 5 and 7 are reserved.
enum class IpBytes : uint8_t { suppressed = 0, update16 = 1, update32 = 2, sext48 = 3, update48 = 4, full64 = 6 };

/// One packet. Which fields mean something depends on `kind`; the rest are 0.
struct Packet {
  PacketKind kind = PacketKind::bad;
  uint8_t size_bytes = 0;
  IpBytes ip_bytes = IpBytes::suppressed;  ///< tip, tip_pge, tip_pgd, fup
  uint8_t bits = 0;          ///< tnt: number of branches 1..47. ptw: payload bytes 4 or 8. bip: id. cfe: type. evd: type. bbp: sz. exstop/ptw/bep/cfe: see flags
  uint8_t flags = 0;         ///< see PacketFlag
  uint8_t extra = 0;         ///< cfe: vector. pwre: hw<<7|... see below; mwait: ext; pwrx: wake reason; bbp: type
  uint64_t value = 0;        ///< tnt: branches, the oldest in bit (bits-1). ip packets: raw compressed payload. others: payload
  uint64_t aux = 0;          ///< tma: fast counter (value = CTC). pip: nr is in flags. mwait: extensions. pwrx/pwre: packed payload is in value
};

/// Bits of Packet::flags.
inline constexpr uint8_t kFlagIp = 1;        ///< ptw.IP, exstop.IP, bep.IP, cfe.IP: a FUP follows
inline constexpr uint8_t kFlagNonRoot = 2;   ///< pip.NR
inline constexpr uint8_t kFlagCsL = 4;       ///< mode.exec: CS.L
inline constexpr uint8_t kFlagCsD = 8;       ///< mode.exec: CS.D
inline constexpr uint8_t kFlagIf = 16;       ///< mode.exec: RFLAGS.IF (with event trace)
inline constexpr uint8_t kFlagInTx = 32;     ///< mode.tsx: in transaction
inline constexpr uint8_t kFlagAbort = 64;    ///< mode.tsx: transaction aborted
inline constexpr uint8_t kFlagHw = 128;      ///< pwre: hardware entry; trig: (see table)

/// Applies ip compression: the full ip of an ip packet given the previous one ([SDM] "IP Compression").
/// Returns false if the payload is suppressed (last ip unchanged).
[[nodiscard]] bool decompress_ip(const Packet& packet, uint64_t& last_ip);

/// Name in the style of the SDM: "PSB", "TIP.PGE", "MODE.Exec".
[[nodiscard]] const char* name(PacketKind kind);

}  // namespace ptd::pt
