// Length and branch class of one A64, A32 or T32 instruction, as needed to follow an Arm trace.
#pragma once

#include <cstdint>

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd {

/// How an instruction changes the flow, in the terms of [ETE] and [ETMv4] "P0 instructions".
enum class ArmClass : uint8_t {
  other,     ///< sequential: never P0
  direct,    ///< B, BL, BLX (immediate), CBZ, TBZ, CB<cc>, LE, WLS: the target is in the instruction
  indirect,  ///< BR, BLR, RET, ERET, BX, and any other write to the PC
  isb,       ///< ISB, also as a CP15 write
  barrier,   ///< DMB, DSB, also as a CP15 write: a waypoint of PTM if configured, else sequential
  wait,      ///< WFI, WFE, WFIT, WFET: P0 if TRCIDR2.WFXMODE is set
  tstart,    ///< TSTART: P0 where transactions are traced
  bad,       ///< not an instruction: reserved, permanently undefined, or truncated
};

enum class ArmDetail : uint8_t { none, ret, eret, svc, hvc, smc, brk };

struct ArmInsn {
  ArmClass cls = ArmClass::bad;
  ArmDetail detail = ArmDetail::none;
  uint8_t length_bytes = 0;     ///< 2 or 4; 0 if the instruction is truncated
  bool link = false;            ///< writes the link register
  bool conditional = false;     ///< may be not taken; T32: not counting an IT block
  bool changes_set = false;     ///< BLX (immediate): A32 becomes T32 and vice versa
  uint8_t it_instructions = 0;  ///< IT: number of instructions that it makes conditional
  int64_t displacement = 0;     ///< direct: target minus own address; T32 BLX: target minus own address rounded down to 4
  friend constexpr bool operator==(const ArmInsn&, const ArmInsn&) = default;
};

inline constexpr unsigned kArmFetchBytes = 4;

constexpr bool is_arm(ExecMode mode) { return mode == ExecMode::a64 || mode == ExecMode::a32 || mode == ExecMode::t32; }

/// Decodes one instruction at the start of `bytes` (little-endian, like all Armv7 and later code). Never reads past `bytes`.
/// Source: [ARM] "A64 instruction set encoding", "A32 instruction set encoding", "T32 instruction set encoding".
[[nodiscard]] PTD_API ArmInsn classify_arm(Bytes bytes, ExecMode mode);
/// Decodes one A64 instruction.
[[nodiscard]] PTD_API ArmInsn classify_a64(uint32_t word);

/// Returns true for most A64 instructions that classify_arm() classifies as `other` without detail: by bits 28:25 they are neither
/// branches nor system instructions nor reserved ([ARM] "A64 instruction set encoding").
[[nodiscard]] constexpr bool is_plain_a64(uint32_t word) {
  constexpr uint32_t kPlainGroups = 0b1111'0011'1111'0000;
  return ((kPlainGroups >> ((word >> 25) & 0xf)) & 1) != 0;
}

/// A sequence of contiguous instructions.
struct ArmStretch {
  uint64_t instructions = 0, size_bytes = 0;
  uint64_t last_bytes = 0;  ///< size of the last one
};
/// Returns the instructions at the start of `bytes` that classify_arm() classifies as `other` with neither detail nor IT, as far as a
/// quick test shows it; at most `most`. Each is completely within `bytes`.
[[nodiscard]] PTD_API ArmStretch plain_stretch(Bytes bytes, ExecMode mode, uint64_t most);
/// Same for instructions of any class but `bad`, without IT.
[[nodiscard]] PTD_API ArmStretch sound_stretch(Bytes bytes, ExecMode mode, uint64_t most);

/// Returns the target of a direct branch at `ip`; A32 and T32 addresses wrap at 32 bits.
[[nodiscard]] constexpr Ip arm_target(const ArmInsn& insn, Ip ip, ExecMode mode) {
  const uint64_t base = mode == ExecMode::t32 && insn.changes_set ? ip.value & ~uint64_t{3} : ip.value;
  const uint64_t target = base + static_cast<uint64_t>(insn.displacement);
  return Ip{mode == ExecMode::a64 ? target : target & 0xffffffffU};
}
/// Returns the instruction set at the target of a direct branch.
[[nodiscard]] constexpr ExecMode arm_target_mode(const ArmInsn& insn, ExecMode mode) {
  if (!insn.changes_set) return mode;
  return mode == ExecMode::a32 ? ExecMode::t32 : ExecMode::a32;
}

}  // namespace ptd
