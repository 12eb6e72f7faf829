// The branch classifier of the three Arm instruction sets. The comment of each row is the encoding.
#include "ptdecode/arm_insn.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

namespace ptd {
namespace {

constexpr int64_t sign_extend(uint64_t value, unsigned bits) {
  const uint64_t sign = uint64_t{1} << (bits - 1);
  return static_cast<int64_t>((value ^ sign) - sign);
}
constexpr uint64_t field(uint32_t word, unsigned low, unsigned width) { return (word >> low) & ((uint64_t{1} << width) - 1); }

/// Position of the displacement in a direct branch.
enum class Reach : uint8_t { none, imm26, imm19, imm14, imm9, a32, a32_blx, t1, t2, t3, t4, blx, cbz, le, wls };

struct Row {
  constexpr Row(uint32_t bits_, uint32_t mask_, ArmClass cls, Reach reach_ = Reach::none, ArmDetail detail = ArmDetail::none,
                bool link = false, bool conditional = false)
      : bits(bits_), mask(mask_), reach(reach_) {
    insn.cls = cls;
    insn.detail = detail;
    insn.link = link;
    insn.conditional = conditional;
    insn.changes_set = reach == Reach::a32_blx || reach == Reach::blx;
  }
  uint32_t bits, mask;
  Reach reach;
  ArmInsn insn;  ///< without length and displacement
};

using enum ArmClass;

// The first matching row decides.
constexpr Row kA64[] = {
    // 0101 0100 imm19 o cond: B.cond, BC.cond
    {0x54000000, 0xff000000, direct, Reach::imm19, ArmDetail::none, false, true},
    // -011 010- imm19 Rt: CBZ, CBNZ
    {0x34000000, 0x7e000000, direct, Reach::imm19, ArmDetail::none, false, true},
    // -011 011- b40 imm14 Rt: TBZ, TBNZ
    {0x36000000, 0x7e000000, direct, Reach::imm14, ArmDetail::none, false, true},
    // 0001 01 imm26: B
    {0x14000000, 0xfc000000, direct, Reach::imm26},
    // 1001 01 imm26: BL
    {0x94000000, 0xfc000000, direct, Reach::imm26, ArmDetail::none, true},
    // 1101 0110 0001 1111 0000 00 Rn 00000: BR
    {0xd61f0000, 0xfffffc1f, indirect},
    // 1101 0110 0011 1111 0000 00 Rn 00000: BLR
    {0xd63f0000, 0xfffffc1f, indirect, Reach::none, ArmDetail::none, true},
    // 1101 0110 0101 1111 0000 00 Rn 00000: RET
    {0xd65f0000, 0xfffffc1f, indirect, Reach::none, ArmDetail::ret},
    // 1101 0110 1001 1111 0000 0011 1110 0000: ERET
    {0xd69f03e0, 0xffffffff, indirect, Reach::none, ArmDetail::eret},
    // 1101 0110 1001 1111 0000 1M11 1111 1111: ERETAA, ERETAB
    {0xd69f0bff, 0xfffffbff, indirect, Reach::none, ArmDetail::eret},
    // 1101 0110 0101 1111 0000 1M11 111 Rm: RETAA, RETAB (Rm = 31), RETAASPPCR, RETABSPPCR
    {0xd65f0be0, 0xfffffbe0, indirect, Reach::none, ArmDetail::ret},
    // 0101 0101 00M imm16 11111: RETAASPPC, RETABSPPC
    {0x5500001f, 0xffc0001f, indirect, Reach::none, ArmDetail::ret},
    // 1101 0110 0001 1111 0000 1M Rn 11111: BRAAZ, BRABZ
    {0xd61f081f, 0xfffff81f, indirect},
    // 1101 0110 0011 1111 0000 1M Rn 11111: BLRAAZ, BLRABZ
    {0xd63f081f, 0xfffff81f, indirect, Reach::none, ArmDetail::none, true},
    // 1101 0111 0001 1111 0000 1M Rn Rm: BRAA, BRAB
    {0xd71f0800, 0xfffff800, indirect},
    // 1101 0111 0011 1111 0000 1M Rn Rm: BLRAA, BLRAB
    {0xd73f0800, 0xfffff800, indirect, Reach::none, ArmDetail::none, true},
    // 1101 0110 1111 1111 0000 0N11 1110 0000: TEXIT
    {0xd6ff03e0, 0xfffffbff, indirect, Reach::none, ArmDetail::eret},
    // -111 0100 cc- Rm 00 imm9 Rt: CB<cc> (register)
    {0x74000000, 0x7f00c000, direct, Reach::imm9, ArmDetail::none, false, true},
    // 0111 0100 cc- Rm 1- imm9 Rt: CBB<cc>, CBH<cc>
    {0x74008000, 0xff008000, direct, Reach::imm9, ArmDetail::none, false, true},
    // -111 0101 cc- imm6 -0 imm9 Rt: CB<cc> (immediate)
    {0x75000000, 0x7f004000, direct, Reach::imm9, ArmDetail::none, false, true},
    // 1101 0101 0000 0011 0011 CRm 1101 1111: ISB
    {0xd50330df, 0xfffff0ff, isb},
    // 1101 0101 0000 0011 0011 CRm 10-1 1111: DSB, DMB
    {0xd503309f, 0xfffff0df, barrier},
    // 1101 0101 0000 0011 0010 0000 01-1 1111: WFE, WFI
    {0xd503205f, 0xffffffdf, wait},
    // 1101 0101 0000 0011 0001 0000 00- Rd: WFET, WFIT
    {0xd5031000, 0xffffffc0, wait},
    // 1101 0101 0010 0011 0011 0000 011 Rt: TSTART
    {0xd5233060, 0xffffffe0, tstart},
    // 1101 0100 000 imm16 00001: SVC
    {0xd4000001, 0xffe0001f, other, Reach::none, ArmDetail::svc},
    // 1101 0100 000 imm16 00010: HVC
    {0xd4000002, 0xffe0001f, other, Reach::none, ArmDetail::hvc},
    // 1101 0100 000 imm16 00011: SMC
    {0xd4000003, 0xffe0001f, other, Reach::none, ArmDetail::smc},
    // 1101 0100 001 imm16 00000: BRK
    {0xd4200000, 0xffe0001f, other, Reach::none, ArmDetail::brk},
    // 0--0 000- : reserved, UDF
    {0x00000000, 0x9e000000, bad},
    // ---0 001- : unallocated
    {0x02000000, 0x1e000000, bad},
    // ---0 011- : unallocated
    {0x06000000, 0x1e000000, bad},
};

// Condition 1111.
constexpr Row kA32Unconditional[] = {
    // 1111 101H imm24: BLX (immediate)
    {0xfa000000, 0xfe000000, direct, Reach::a32_blx, ArmDetail::none, true},
    // 1111 100P U0W1 Rn: RFE
    {0xf8100000, 0xfe500000, indirect, Reach::none, ArmDetail::eret},
    // 1111 0101 0111 1111 1111 0000 0110 option: ISB
    {0xf5700060, 0xfff000f0, isb},
    // 1111 0101 0111 1111 1111 0000 0100 option: DSB
    {0xf5700040, 0xfff000f0, barrier},
    // 1111 0101 0111 1111 1111 0000 0101 option: DMB
    {0xf5700050, 0xfff000f0, barrier},
};

// All other conditions.
constexpr Row kA32[] = {
    // cond 1010 imm24: B
    {0x0a000000, 0x0f000000, direct, Reach::a32},
    // cond 1011 imm24: BL
    {0x0b000000, 0x0f000000, direct, Reach::a32, ArmDetail::none, true},
    // cond 0001 0010 1111 1111 1111 0001 1110: BX LR
    {0x0120001e, 0x0ff000ff, indirect, Reach::none, ArmDetail::ret},
    // cond 0001 0010 1111 1111 1111 0001 Rm: BX
    {0x01200010, 0x0ff000f0, indirect},
    // cond 0001 0010 1111 1111 1111 0010 Rm: BXJ
    {0x01200020, 0x0ff000f0, indirect},
    // cond 0001 0010 1111 1111 1111 0011 Rm: BLX (register)
    {0x01200030, 0x0ff000f0, indirect, Reach::none, ArmDetail::none, true},
    // cond 0001 0110 0000 0000 0000 0110 1110: ERET
    {0x0160006e, 0x0fffffff, indirect, Reach::none, ArmDetail::eret},
    // cond 0001 0100 imm12 0111 imm4: HVC
    {0x01400070, 0x0ff000f0, other, Reach::none, ArmDetail::hvc},
    // cond 0001 0110 0000 0000 0000 0111 imm4: SMC
    {0x01600070, 0x0ff000f0, other, Reach::none, ArmDetail::smc},
    // cond 0001 0010 imm12 0111 imm4: BKPT
    {0x01200070, 0x0ff000f0, other, Reach::none, ArmDetail::brk},
    // cond 1000 1011 1101 1--- list: LDMIA SP!, {.., PC}
    {0x08bd8000, 0x0fff8000, indirect, Reach::none, ArmDetail::ret},
    // cond 100P U-W1 Rn 1--- list: LDM with PC and without the user registers or as exception return
    {0x08108000, 0x0e108000, indirect},
    // cond 0100 1001 1101 1111 imm12: LDR PC, [SP], #imm
    {0x049df000, 0x0ffff000, indirect, Reach::none, ArmDetail::ret},
    // cond 010P U0W1 Rn 1111 imm12: LDR PC (immediate, literal)
    {0x0410f000, 0x0e50f000, indirect},
    // cond 011P U0W1 Rn 1111 imm5 type 0 Rm: LDR PC (register)
    {0x0610f000, 0x0e50f010, indirect},
    // cond 0111 1111 imm12 1111 imm4: UDF
    {0x07f000f0, 0x0ff000f0, bad},
    // cond 0001 1010 ---- 1111 0000 0000 1110: MOV PC, LR
    {0x01a0f00e, 0x0ff0ffff, indirect, Reach::none, ArmDetail::ret},
    // cond 0001 0--0 : miscellaneous; cond 0001 0--1: TST, TEQ, CMP, CMN (register): no result
    {0x01000000, 0x0f800000, other},
    // cond 000- ---- Rn 1111 ---- 1--1: multiplies, extra loads and stores
    {0x00000090, 0x0e000090, other},
    // cond 000- ---- Rn 1111: data processing (register) to PC
    {0x0000f000, 0x0e00f000, indirect},
    // cond 0011 0--- : MOVW, MOVT, MSR (immediate), hints; TST, TEQ, CMP, CMN (immediate): no result in PC
    {0x0320f002, 0x0ffffffe, wait},
    {0x03000000, 0x0f800000, other},
    // cond 001- ---- Rn 1111: data processing (immediate) to PC
    {0x0200f000, 0x0e00f000, indirect},
    // cond 1110 0000 0111 Rt 1111 1001 0101: MCR p15, 0, Rt, c7, c5, 4 (ISB)
    {0x0e070f95, 0x0fff0fff, isb},
    // cond 1110 0000 0111 Rt 1111 1001 1010: MCR p15, 0, Rt, c7, c10, 4 (DSB)
    {0x0e070f9a, 0x0fff0fff, barrier},
    // cond 1110 0000 0111 Rt 1111 1011 1010: MCR p15, 0, Rt, c7, c10, 5 (DMB)
    {0x0e070fba, 0x0fff0fff, barrier},
    // cond 1111 imm24: SVC
    {0x0f000000, 0x0f000000, other, Reach::none, ArmDetail::svc},
};

// Sixteen bits.
constexpr Row kT16[] = {
    // 1101 1110 imm8: UDF
    {0xde00, 0xff00, bad},
    // 1101 1111 imm8: SVC
    {0xdf00, 0xff00, other, Reach::none, ArmDetail::svc},
    // 1101 cond imm8: B
    {0xd000, 0xf000, direct, Reach::t1, ArmDetail::none, false, true},
    // 1110 0 imm11: B
    {0xe000, 0xf800, direct, Reach::t2},
    // 1011 o0i1 imm5 Rn: CBZ, CBNZ
    {0xb100, 0xf500, direct, Reach::cbz, ArmDetail::none, false, true},
    // 0100 0111 0111 0---: BX LR
    {0x4770, 0xfff8, indirect, Reach::none, ArmDetail::ret},
    // 0100 0111 0 Rm N--: BX, BXNS
    {0x4700, 0xff80, indirect},
    // 0100 0111 1 Rm N--: BLX, BLXNS
    {0x4780, 0xff80, indirect, Reach::none, ArmDetail::none, true},
    // 0100 0110 1111 0111: MOV PC, LR
    {0x46f7, 0xffff, indirect, Reach::none, ArmDetail::ret},
    // 0100 0110 1 Rm 111: MOV PC
    {0x4687, 0xff87, indirect},
    // 0100 0100 1 Rm 111: ADD PC
    {0x4487, 0xff87, indirect},
    // 1011 1101 list: POP {.., PC}
    {0xbd00, 0xff00, indirect, Reach::none, ArmDetail::ret},
    // 1011 1111 001- 0000: WFE, WFI
    {0xbf20, 0xffef, wait},
    // 1011 1110 imm8: BKPT
    {0xbe00, 0xff00, other, Reach::none, ArmDetail::brk},
};

// Thirty-two bits, the first halfword above.
constexpr Row kT32[] = {
    // 1111 0011 1010 1111 1000 0000 0000 001-: WFE, WFI
    {0xf3af8002, 0xfffffffe, wait},
    // 1111 0011 1011 ---- 10-0 ---- 0110 option: ISB
    {0xf3b08060, 0xfff0d0f0, isb},
    // 1111 0011 1011 ---- 10-0 ---- 010- option: DSB, DMB
    {0xf3b08040, 0xfff0d0e0, barrier},
    // 1111 0011 1100 Rm 1000 1111 0000 0000: BXJ
    {0xf3c08000, 0xfff0d000, indirect},
    // 1111 0011 1101 Rn 1000 1111 imm8: ERET, SUBS PC, LR
    {0xf3d08000, 0xfff0d000, indirect, Reach::none, ArmDetail::eret},
    // 1111 0111 1110 imm4 1000 imm12: HVC
    {0xf7e08000, 0xfff0f000, other, Reach::none, ArmDetail::hvc},
    // 1111 0111 1111 imm4 1000 0000 0000 0000: SMC
    {0xf7f08000, 0xfff0f000, other, Reach::none, ArmDetail::smc},
    // 1111 0111 1111 imm4 1010 imm12: UDF
    {0xf7f0a000, 0xfff0f000, bad},
    // 1111 0-11 1--- ---- 10-0: other system instructions
    {0xf3808000, 0xfb80d000, other},
    // 1111 0S cond imm6 10 J1 0 J2 imm11: B
    {0xf0008000, 0xf800d000, direct, Reach::t3, ArmDetail::none, false, true},
    // 1111 0S imm10 10 J1 1 J2 imm11: B
    {0xf0009000, 0xf800d000, direct, Reach::t4},
    // 1111 0S imm10 11 J1 1 J2 imm11: BL
    {0xf000d000, 0xf800d000, direct, Reach::t4, ArmDetail::none, true},
    // 1111 0S imm10H 11 J1 0 J2 imm10L 0: BLX (immediate)
    {0xf000c000, 0xf800d001, direct, Reach::blx, ArmDetail::none, true},
    // 1111 0000 00-- 1111 1100 imm10 1: LE, LETP
    {0xf00fc001, 0xffcff001, direct, Reach::le, ArmDetail::none, false, true},
    // 1111 0000 0100 Rn 1100 imm10 1: WLS
    {0xf040c001, 0xfff0f001, direct, Reach::wls, ArmDetail::none, false, true},
    // 1111 0000 00 size Rn 1100 imm10 1: WLSTP
    {0xf000c001, 0xffc0f001, direct, Reach::wls, ArmDetail::none, false, true},
    // 1110 1000 1101 Rn 1111 0000 000H Rm: TBB, TBH
    {0xe8d0f000, 0xfff0ffe0, indirect},
    // 1110 1000 00W1 Rn, 1110 1001 10W1 Rn: RFE
    {0xe8100000, 0xffd00000, indirect, Reach::none, ArmDetail::eret},
    {0xe9900000, 0xffd00000, indirect, Reach::none, ArmDetail::eret},
    // 1110 1000 1011 1101 1--- list: POP {.., PC}
    {0xe8bd8000, 0xffff8000, indirect, Reach::none, ArmDetail::ret},
    // 1110 1000 10W1 Rn 1---, 1110 1001 00W1 Rn 1---: LDM with PC
    {0xe8908000, 0xffd08000, indirect},
    {0xe9108000, 0xffd08000, indirect},
    // 1111 1000 0101 1101 1111 1011 imm8: LDR PC, [SP], #imm
    {0xf85dfb00, 0xffffff00, indirect, Reach::none, ArmDetail::ret},
    // 1111 1000 -101 1111 1111 imm12: LDR PC (literal)
    {0xf85ff000, 0xff7ff000, indirect},
    // 1111 1000 1101 Rn 1111 imm12: LDR PC (immediate)
    {0xf8d0f000, 0xfff0f000, indirect},
    // 1111 1000 0101 Rn 1111 1PUW imm8: LDR PC (immediate)
    {0xf850f800, 0xfff0f800, indirect},
    // 1111 1000 0101 Rn 1111 0000 00 imm2 Rm: LDR PC (register)
    {0xf850f000, 0xfff0ffc0, indirect},
    // 1110 1110 0000 0111 Rt 1111 1001 0101: MCR p15, 0, Rt, c7, c5, 4 (ISB)
    {0xee070f95, 0xffff0fff, isb},
    // 1110 1110 0000 0111 Rt 1111 1001 1010: MCR p15, 0, Rt, c7, c10, 4 (DSB)
    {0xee070f9a, 0xffff0fff, barrier},
    // 1110 1110 0000 0111 Rt 1111 1011 1010: MCR p15, 0, Rt, c7, c10, 5 (DMB)
    {0xee070fba, 0xffff0fff, barrier},
};

// T32 wide branches: S:I1:I2:imm10:imm11:0, I = NOT(J XOR S).
int64_t wide_displacement(uint32_t word, uint64_t low) {
  const uint64_t s = field(word, 26, 1);
  const uint64_t i1 = (field(word, 13, 1) ^ s) ^ 1, i2 = (field(word, 11, 1) ^ s) ^ 1;
  return sign_extend((s << 24) | (i1 << 23) | (i2 << 22) | (field(word, 16, 10) << 12) | low, 25);
}

// v8.1-M loops: imm10:imm1:0.
int64_t loop_displacement(uint32_t word) { return static_cast<int64_t>((field(word, 1, 10) << 2) | (field(word, 11, 1) << 1)); }

int64_t displacement(Reach reach, uint32_t word) {
  switch (reach) {
    case Reach::imm26:
      return sign_extend(field(word, 0, 26) << 2, 28);
    case Reach::imm19:
      return sign_extend(field(word, 5, 19) << 2, 21);
    case Reach::imm14:
      return sign_extend(field(word, 5, 14) << 2, 16);
    case Reach::imm9:
      return sign_extend(field(word, 5, 9) << 2, 11);
    case Reach::a32:
      return 8 + sign_extend(field(word, 0, 24) << 2, 26);
    case Reach::a32_blx:
      return 8 + sign_extend((field(word, 0, 24) << 2) | (field(word, 24, 1) << 1), 26);
    case Reach::t1:
      return 4 + sign_extend(field(word, 0, 8) << 1, 9);
    case Reach::t2:
      return 4 + sign_extend(field(word, 0, 11) << 1, 12);
    case Reach::t3:
      return 4 + sign_extend((field(word, 26, 1) << 20) | (field(word, 11, 1) << 19) | (field(word, 13, 1) << 18) |
                                 (field(word, 16, 6) << 12) | (field(word, 0, 11) << 1),
                             21);
    case Reach::t4:
      return 4 + wide_displacement(word, field(word, 0, 11) << 1);
    case Reach::blx:
      return 4 + wide_displacement(word, field(word, 1, 10) << 2);
    case Reach::cbz:
      return 4 + static_cast<int64_t>((field(word, 9, 1) << 6) | (field(word, 3, 5) << 1));
    case Reach::le:
      return 4 - loop_displacement(word);
    case Reach::wls:
      return 4 + loop_displacement(word);
    case Reach::none:
      break;
  }
  return 0;
}

ArmInsn insn_of(const Row& row, uint32_t word, uint8_t length_bytes) {
  ArmInsn insn = row.insn;
  insn.length_bytes = length_bytes;
  insn.displacement = displacement(row.reach, word);
  return insn;
}

ArmInsn match(std::span<const Row> rows, uint32_t word, uint8_t length_bytes) {
  for (const Row& row : rows) {
    if ((word & row.mask) == row.bits) return insn_of(row, word, length_bytes);
  }
  return {other, ArmDetail::none, length_bytes};
}

/// The rows that words with the same byte at bit kShift can match.
struct RowRange {
  uint8_t first = 0, end = 0;
};
template <unsigned kShift, size_t kRows>
constexpr std::array<RowRange, 256> ranges_by_byte(const Row (&rows)[kRows]) {
  std::array<RowRange, 256> ranges{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t row = 0; row < kRows; ++row) {
      const uint32_t looked_at = rows[row].mask & (0xffU << kShift);
      if (((byte << kShift) & looked_at) != (rows[row].bits & (0xffU << kShift))) continue;
      if (ranges[byte].end == 0) ranges[byte].first = static_cast<uint8_t>(row);
      ranges[byte].end = static_cast<uint8_t>(row + 1);
    }
  }
  return ranges;
}
constexpr std::array<RowRange, 256> kA64Ranges = ranges_by_byte<24>(kA64), kA32Ranges = ranges_by_byte<20>(kA32),
                                    kT16Ranges = ranges_by_byte<8>(kT16), kT32Ranges = ranges_by_byte<24>(kT32);

template <size_t kRows>
ArmInsn match(const Row (&rows)[kRows], RowRange range, uint32_t word, uint8_t length_bytes) {
  return match(std::span(rows).subspan(range.first, range.end - range.first), word, length_bytes);
}

/// Words with the same top byte, if it determines everything but the displacement.
struct TopByte {
  bool told = false;
  uint8_t above = 0, beside = 0;  ///< bits above the displacement's bits, and all bits outside of them
  ArmInsn insn;                   ///< without the displacement
};
constexpr std::array<TopByte, 256> kA64ByTopByte = [] {
  std::array<TopByte, 256> bytes{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const RowRange range = kA64Ranges[byte];
    const Row& row = kA64[range.first];
    if (range.end == 0 || (row.mask & 0xffffff) != 0) continue;
    TopByte& top = bytes[byte];
    top.told = row.reach == Reach::imm26 || row.reach == Reach::imm19 || row.reach == Reach::imm14;
    top.above = row.reach == Reach::imm26 ? 6 : row.reach == Reach::imm19 ? 8 : 13;
    top.beside = row.reach == Reach::imm26 ? 6 : row.reach == Reach::imm19 ? 13 : 18;
    top.insn = row.insn;
    top.insn.length_bytes = 4;
  }
  return bytes;
}();

ArmInsn classify_a32(uint32_t word) {
  if (word >> 28 == 0xf) return match(kA32Unconditional, word, 4);
  ArmInsn insn = match(kA32, kA32Ranges[(word >> 20) & 0xff], word, 4);
  insn.conditional = word >> 28 != 0xe;
  return insn;
}

ArmInsn classify_t16(uint32_t word) {
  ArmInsn insn = match(kT16, kT16Ranges[(word >> 8) & 0xff], word, 2);
  // 1011 1111 firstcond mask: IT; the lowest set bit of mask ends the block
  if ((word & 0xff00) == 0xbf00 && (word & 0xf) != 0) {
    insn.it_instructions = (word & 1) != 0 ? 4 : (word & 2) != 0 ? 3 : (word & 4) != 0 ? 2 : 1;
  }
  return insn;
}

/// Bits common to all rows that words with the same byte at bit kShift can match: a word without these bits matches none.
struct RowHint {
  uint32_t mask = 0, bits = 1;  // no word matches
  [[nodiscard]] constexpr bool may_fit(uint32_t word) const { return (word & mask) == bits; }
};
using RowHints = std::array<RowHint, 256>;  // by byte

/// Returns the hints for the rows for which `matters` is true.
template <unsigned kShift, size_t kRows, typename Matters>
constexpr RowHints hints_by_byte(const Row (&rows)[kRows], Matters matters) {
  RowHints hints{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    bool first = true;
    for (const Row& row : rows) {
      const uint32_t looked_at = row.mask & (0xffU << kShift);
      if (((byte << kShift) & looked_at) != (row.bits & (0xffU << kShift)) || !matters(row)) continue;
      RowHint& hint = hints[byte];
      hint.mask = first ? row.mask : hint.mask & row.mask & ~(hint.bits ^ row.bits);
      hint.bits = (first ? row.bits : hint.bits) & hint.mask;
      first = false;
    }
  }
  return hints;
}

/// Hints for the words that may matter, per table.
struct StopWords {
  RowHints a64, a32, a32_unconditional, t16, t32;
};
template <typename Matters>
constexpr StopWords stop_words(Matters matters) {
  return {hints_by_byte<24>(kA64, matters), hints_by_byte<20>(kA32, matters), hints_by_byte<20>(kA32Unconditional, matters),
          hints_by_byte<8>(kT16, matters), hints_by_byte<24>(kT32, matters)};
}
// Words without a row are `other` without detail, and so are words whose row says exactly that.
constexpr StopWords kNotPlain = stop_words([](const Row& row) { return row.insn.cls != other || row.insn.detail != ArmDetail::none; });
constexpr StopWords kNotSound = stop_words([](const Row& row) { return row.insn.cls == bad; });

ArmStretch t32_stretch(Bytes bytes, uint64_t most, const StopWords& stops) {
  ArmStretch stretch;
  for (; stretch.instructions < most && bytes.size() - stretch.size_bytes >= 2; ++stretch.instructions) {
    uint16_t first = 0, second = 0;
    std::memcpy(&first, bytes.data() + stretch.size_bytes, 2);
    if (first >> 11 < 0x1d) {
      if (first >> 8 == 0xbf || stops.t16[first >> 8].may_fit(first)) break;  // 1011 1111: IT, hints
      stretch.size_bytes += 2;
      stretch.last_bytes = 2;
      continue;
    }
    if (bytes.size() - stretch.size_bytes < 4) break;
    std::memcpy(&second, bytes.data() + stretch.size_bytes + 2, 2);
    if (stops.t32[first >> 8].may_fit(uint32_t{first} << 16 | second)) break;
    stretch.size_bytes += 4;
    stretch.last_bytes = 4;
  }
  return stretch;
}

/// Counts words while `goes_on` is true.
template <typename GoesOn>
ArmStretch words_while(Bytes bytes, uint64_t most, GoesOn goes_on) {
  static_assert(std::endian::native == std::endian::little);
  const std::byte* const begin = bytes.data();
  const std::byte* const end = begin + 4 * std::min<uint64_t>(bytes.size() / 4, most);
  const std::byte* at = begin;
  for (; at != end; at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, at, 4);
    if (!goes_on(word)) break;
  }
  const auto size = static_cast<uint64_t>(at - begin);
  return {size / 4, size, 4};
}

template <const StopWords& kStops>
ArmStretch a64_stretch(Bytes bytes, uint64_t most) {
  return words_while(bytes, most, [](uint32_t word) { return is_plain_a64(word) || !kStops.a64[word >> 24].may_fit(word); });
}

template <const StopWords& kStops>
ArmStretch a32_stretch(Bytes bytes, uint64_t most) {
  return words_while(bytes, most, [](uint32_t word) {
    const uint32_t byte = (word >> 20) & 0xff;
    return word >> 28 == 0xf ? !kStops.a32_unconditional[byte].may_fit(word) : !kStops.a32[byte].may_fit(word);
  });
}

uint32_t byte_at(Bytes bytes, size_t index) { return static_cast<uint32_t>(bytes[index]); }
uint32_t half_at(Bytes bytes, size_t index) { return byte_at(bytes, index) | (byte_at(bytes, index + 1) << 8); }

}  // namespace

ArmInsn classify_a64(uint32_t word) {
  if (const TopByte& top = kA64ByTopByte[word >> 24]; top.told) {
    ArmInsn insn = top.insn;
    insn.displacement = int64_t{static_cast<int32_t>(word << top.above) >> top.beside} * 4;
    return insn;
  }
  if (is_plain_a64(word)) return {other, ArmDetail::none, 4};
  return match(kA64, kA64Ranges[word >> 24], word, 4);
}

ArmInsn classify_arm(Bytes bytes, ExecMode mode) {
  if (mode == ExecMode::t32) {
    if (bytes.size() < 2) return {};
    const uint32_t first = half_at(bytes, 0);
    if (first >> 11 < 0x1d) return classify_t16(first);
    if (bytes.size() < 4) return {};
    const uint32_t wide = (first << 16) | half_at(bytes, 2);
    return match(kT32, kT32Ranges[wide >> 24], wide, 4);
  }
  if (bytes.size() < 4) return {};
  uint32_t word = 0;
  std::memcpy(&word, bytes.data(), 4);
  if (mode == ExecMode::a64) return classify_a64(word);
  if (mode == ExecMode::a32) return classify_a32(word);
  return {};
}

ArmStretch plain_stretch(Bytes bytes, ExecMode mode, uint64_t most) {
  return mode == ExecMode::t32   ? t32_stretch(bytes, most, kNotPlain)
         : mode == ExecMode::a64 ? a64_stretch<kNotPlain>(bytes, most)
         : mode == ExecMode::a32 ? a32_stretch<kNotPlain>(bytes, most)
                                 : ArmStretch{};
}

ArmStretch sound_stretch(Bytes bytes, ExecMode mode, uint64_t most) {
  return mode == ExecMode::t32   ? t32_stretch(bytes, most, kNotSound)
         : mode == ExecMode::a64 ? a64_stretch<kNotSound>(bytes, most)
         : mode == ExecMode::a32 ? a32_stretch<kNotSound>(bytes, most)
                                 : ArmStretch{};
}

}  // namespace ptd
