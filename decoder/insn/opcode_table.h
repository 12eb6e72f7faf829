// The x86 opcode maps as length tables: the bytes after each opcode, and the opcodes that affect the flow.
#pragma once

#include <array>
#include <cstdint>

// Source: [SDM] volume 2, appendix "Opcode Map"; [APX] "REX2 Prefix", "Extended EVEX Prefix"; [AMD] volume 3, "Opcode and Operand
// Encodings" for 3DNow!, SSE4a and XOP. Every cell is one Form; a grid row is 16 opcodes, its comment the row's bit pattern.
//
// Which encodings are `bad`. The rule: an encoding is bad if the *format* gives it no instruction, not if an instruction with a known
// length faults because of its operands or prefixes. Where the format fixes the length of a slot, present and future instructions in
// it are alike, so an unassigned slot of such a map keeps its length (class other).
// | encoding                                                             | verdict | why                                           |
// |----------------------------------------------------------------------|---------|-----------------------------------------------|
// | 06 07 0E 16 17 1E 1F 27 2F 37 3F 60 61 82 9A CE D4 EA, 64-bit mode   | bad     | [SDM] "i64" superscript                       |
// | D6                                                                   | 64: bad | SALC: undocumented, executes in 16 and 32-bit |
// | 0F 04 0A 0C 24-27 36 39 3B-3F 7A 7B; 0F B8 without F3                | bad     | unassigned, no common length                  |
// | 0F 0E, 0F 0F, 66/F2 0F 78, XOP, 0F A6/A7                             | other   | AMD and VIA instructions                      |
// | other unassigned opcodes of 0F; all of 0F38, 0F3A, VEX, EVEX 1-6     | other   | length fixed by the map                       |
// | UD0, UD1 (with ModRM), UD2                                           | other   | detail ud; they fault by definition           |
// | 8F /1-7 (not XOP), C6 C7 /1-7 (not XABORT, XBEGIN), FE /2-7, FF /7   | bad     | unassigned opcode extensions of map 0         |
// | FF /3, FF /5 with a register operand                                 | bad     | far transfers take a memory operand           |
// | F6 /1, F7 /1, D0-D3 /6, C0 C1 /6                                     | other   | undocumented aliases that execute             |
// | LOCK where not allowed, MOV to CS, LEA of a register, CR5, ...       | other   | operand checks; length known                  |
// | 66, F2, F3, LOCK, REX or REX2 before VEX, EVEX, XOP                  | bad     | [SDM] "Instruction Format", VEX prefix: #UD   |
// | REX before REX2; REX2 with rows 4 7 A E of map 0, rows 3 8 of map 1, | bad     | [APX] "REX2 Prefix"                           |
// |   a prefix or an escape byte; JMPABS with W, 66, 67, F2, F3 or LOCK  |         |                                               |
// | VEX maps 0, 4, 8-31; VEX and EVEX map 7 but F6 and F8; EVEX map 0;   | bad     | no such map in this mode                      |
// |   EVEX map 4 outside 64-bit mode; EVEX 0F 77                         |         |                                               |
// | longer than 15 bytes                                                 | bad     | [SDM] "Instruction Format"                    |
namespace ptd::opcodes {

/// The bytes after the ModRM bytes.
enum class Imm : uint8_t {
  none,
  b,      ///< 8 bits
  w,      ///< 16 bits
  z,      ///< 16 or 32 bits, by operand size
  v,      ///< 16, 32 or 64 bits, by operand size
  jb,     ///< 8-bit branch displacement
  jz,     ///< 16 or 32-bit branch displacement; always 32 in 64-bit mode
  moffs,  ///< 16, 32 or 64 bits, by address size
  wb,     ///< ENTER: 16 and 8 bits
  far,    ///< 16 or 32-bit offset, 16-bit selector
  bb,     ///< EXTRQ, INSERTQ: two of 8 bits
  d,      ///< 32 bits
};

/// Opcodes for which more than the length is needed. The order matters, see steers().
enum class Special : uint8_t {
  none,
  prefix,
  rex,
  rex2,
  esc_0f,
  esc_0f38,
  esc_0f3a,
  vex2,
  vex3,
  evex,
  xop,
  group3,
  group4,
  group5,
  group_c6,
  group_c7,
  mov_cr,
  sse4a,
  popcnt,  // the form depends on ModRM or prefixes
  jmp,
  call,
  jcc,
  loop,
  jcxz,
  ret,
  far_call,
  far_jmp,
  far_ret,
  int3,
  int_n,
  into,
  int1,
  iret,
  hlt,
  moffs_a1,
  group6,
  group7,
  group9,
  group15,
  syscall,
  sysret,
  sysenter,
  sysexit,
  wrmsr,
  rsm,
  ud,
  nop_1e,
  pop_ev,
};

/// Packed: bits 0-3 Imm, 4 has ModRM, 5 bad in 64-bit mode, 6 bad, 8-15 Special.
using Form = uint16_t;
inline constexpr Form kModrm = 0x10, kBad64 = 0x20, kBad = 0x40;
using Map = std::array<Form, 256>;

constexpr Form form(Imm imm) { return static_cast<Form>(imm); }
constexpr Form form(Special special, Imm imm = Imm::none) { return static_cast<Form>((static_cast<unsigned>(special) << 8) | form(imm)); }
/// Returns true for prefixes and escapes, after which another byte determines the opcode.
constexpr bool steers(Special special) { return special >= Special::prefix && special <= Special::xop; }
constexpr Imm imm_of(Form f) { return static_cast<Imm>(f & 0xf); }
constexpr Special special_of(Form f) { return static_cast<Special>(f >> 8); }

namespace cells {
inline constexpr Form N_ = 0, XX = kBad, X6 = kBad64;  // no operand | bad | bad in 64-bit mode
inline constexpr Form M_ = kModrm, Ib = form(Imm::b), Iz = form(Imm::z), Iv = form(Imm::v), Ow = form(Imm::moffs);
inline constexpr Form MB = kModrm | Ib, MZ = kModrm | Iz, B6 = Ib | kBad64, M6 = MB | kBad64;  // ModRM with immediate | 6: bad in 64
inline constexpr Form Pf = form(Special::prefix), Rx = form(Special::rex), En = form(Imm::wb);
inline constexpr Form E0 = form(Special::esc_0f), E8 = form(Special::esc_0f38), EA = form(Special::esc_0f3a);
inline constexpr Form V2 = form(Special::vex2) | kModrm, V3 = form(Special::vex3) | kModrm, EV = form(Special::evex) | kModrm;
inline constexpr Form R2 = form(Special::rex2, Imm::b), XO = form(Special::xop) | kModrm;  // R2: AAD outside 64-bit mode
inline constexpr Form G3 = form(Special::group3) | kModrm, G4 = form(Special::group4) | kModrm, G5 = form(Special::group5) | kModrm;
inline constexpr Form C6 = form(Special::group_c6) | MB, C7 = form(Special::group_c7) | MZ;
inline constexpr Form Jb = form(Special::jcc, Imm::jb), Jz = form(Special::jcc, Imm::jz), Lp = form(Special::loop, Imm::jb);
inline constexpr Form Jc = form(Special::jcxz, Imm::jb), JB = form(Special::jmp, Imm::jb), JZ = form(Special::jmp, Imm::jz);
inline constexpr Form CA = form(Special::call, Imm::jz), CF = form(Special::far_call, Imm::far) | kBad64;
inline constexpr Form JF = form(Special::far_jmp, Imm::far) | kBad64, Rw = form(Special::ret, Imm::w), Re = form(Special::ret);
inline constexpr Form FW = form(Special::far_ret, Imm::w), FR = form(Special::far_ret), I3 = form(Special::int3);
inline constexpr Form In = form(Special::int_n, Imm::b), IO = form(Special::into) | kBad64, I1 = form(Special::int1);
inline constexpr Form IR = form(Special::iret), HL = form(Special::hlt), A1 = form(Special::moffs_a1, Imm::moffs);
inline constexpr Form g6 = form(Special::group6) | M_, g7 = form(Special::group7) | M_, g9 = form(Special::group9) | M_;
inline constexpr Form gF = form(Special::group15) | M_, SC = form(Special::syscall), SR = form(Special::sysret);
inline constexpr Form SE = form(Special::sysenter), SX = form(Special::sysexit), WM = form(Special::wrmsr), RS = form(Special::rsm);
inline constexpr Form U2 = form(Special::ud), UM = form(Special::ud) | M_, Cr = form(Special::mov_cr) | M_;
inline constexpr Form S4 = form(Special::sse4a) | M_, PC = form(Special::popcnt) | M_, NE = form(Special::nop_1e) | M_;
}  // namespace cells

// clang-format off
/// Map 0: one-byte opcodes.
inline constexpr Map kMap0 = [] { using namespace cells; return Map{
// 0   1   2   3   4   5   6   7   8   9   A   B   C   D   E   F
  M_, M_, M_, M_, Ib, Iz, X6, X6, M_, M_, M_, M_, Ib, Iz, X6, E0,  // 0000xxxx ADD, PUSH/POP ES | OR, PUSH CS, 0F escape
  M_, M_, M_, M_, Ib, Iz, X6, X6, M_, M_, M_, M_, Ib, Iz, X6, X6,  // 0001xxxx ADC, PUSH/POP SS | SBB, PUSH/POP DS
  M_, M_, M_, M_, Ib, Iz, Pf, X6, M_, M_, M_, M_, Ib, Iz, Pf, X6,  // 0010xxxx AND, ES:, DAA | SUB, CS:, DAS
  M_, M_, M_, M_, Ib, Iz, Pf, X6, M_, M_, M_, M_, Ib, Iz, Pf, X6,  // 0011xxxx XOR, SS:, AAA | CMP, DS:, AAS
  Rx, Rx, Rx, Rx, Rx, Rx, Rx, Rx, Rx, Rx, Rx, Rx, Rx, Rx, Rx, Rx,  // 0100WRXB REX in 64-bit mode, else INC | DEC
  N_, N_, N_, N_, N_, N_, N_, N_, N_, N_, N_, N_, N_, N_, N_, N_,  // 0101xrrr PUSH | POP
  X6, X6, EV, M_, Pf, Pf, Pf, Pf, Iz, MZ, Ib, MB, N_, N_, N_, N_,  // 0110xxxx PUSHA, POPA, BOUND/EVEX, ARPL/MOVSXD, FS:, GS:, 66, 67 | PUSH, IMUL, INS, OUTS
  Jb, Jb, Jb, Jb, Jb, Jb, Jb, Jb, Jb, Jb, Jb, Jb, Jb, Jb, Jb, Jb,  // 0111cccc Jcc rel8
  MB, MZ, M6, MB, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, XO,  // 1000xxxx group 1, TEST, XCHG | MOV, LEA, POP/XOP
  N_, N_, N_, N_, N_, N_, N_, N_, N_, N_, CF, N_, N_, N_, N_, N_,  // 1001xxxx XCHG, NOP | CBW, CWD, CALL far, FWAIT, PUSHF, POPF, SAHF, LAHF
  Ow, A1, Ow, Ow, N_, N_, N_, N_, Ib, Iz, N_, N_, N_, N_, N_, N_,  // 1010xxxx MOV moffs (REX2 A1: JMPABS), MOVS, CMPS | TEST, STOS, LODS, SCAS
  Ib, Ib, Ib, Ib, Ib, Ib, Ib, Ib, Iv, Iv, Iv, Iv, Iv, Iv, Iv, Iv,  // 1011xrrr MOV r8, imm8 | MOV r, imm
  MB, MB, Rw, Re, V3, V2, C6, C7, En, N_, FW, FR, I3, In, IO, IR,  // 1100xxxx group 2, RET, LES/VEX3, LDS/VEX2, group 11 | ENTER, LEAVE, RETF, INT3, INT, INTO, IRET
  M_, M_, M_, M_, B6, R2, X6, N_, M_, M_, M_, M_, M_, M_, M_, M_,  // 1101xxxx group 2, AAM, AAD/REX2, SALC, XLAT | x87
  Lp, Lp, Lp, Jc, Ib, Ib, Ib, Ib, CA, JZ, JF, JB, N_, N_, N_, N_,  // 1110xxxx LOOPNE, LOOPE, LOOP, JCXZ, IN, OUT | CALL, JMP, JMP far, JMP rel8, IN, OUT
  Pf, I1, Pf, Pf, HL, N_, G3, G3, N_, N_, N_, N_, N_, N_, G4, G5,  // 1111xxxx LOCK, INT1, REPNE, REP, HLT, CMC, group 3 | CLC .. STD, groups 4, 5
}; }();

/// Map 1: 0F xx.
inline constexpr Map kMap1 = [] { using namespace cells; return Map{
// 0   1   2   3   4   5   6   7   8   9   A   B   C   D   E   F
  g6, g7, M_, M_, XX, SC, N_, SR, N_, N_, XX, U2, XX, M_, N_, MB,  // 0000xxxx groups 6, 7, LAR, LSL, SYSCALL, CLTS, SYSRET | INVD, WBINVD, UD2, PREFETCHW, FEMMS, 3DNow!
  M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, NE, M_,  // 0001xxxx MOVUPS .. MOVHPS | hint NOPs, BNDxxx, ENDBR
  Cr, Cr, Cr, Cr, XX, XX, XX, XX, M_, M_, M_, M_, M_, M_, M_, M_,  // 0010xxxx MOV CR, DR | MOVAPS .. COMISS
  WM, N_, N_, N_, SE, SX, XX, N_, E8, XX, EA, XX, XX, XX, XX, XX,  // 0011xxxx WRMSR, RDTSC, RDMSR, RDPMC, SYSENTER, SYSEXIT, GETSEC | 0F38, 0F3A escapes
  M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_,  // 0100cccc CMOVcc
  M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_,  // 0101xxxx MOVMSKPS .. MAXPS
  M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_,  // 0110xxxx PUNPCKLBW .. MOVDQA
  MB, MB, MB, MB, M_, M_, M_, N_, S4, M_, XX, XX, M_, M_, M_, M_,  // 0111xxxx PSHUF, groups 12-14, PCMPEQ, EMMS | VMREAD/EXTRQ/INSERTQ, VMWRITE, HADD, HSUB, MOVD, MOVQ
  Jz, Jz, Jz, Jz, Jz, Jz, Jz, Jz, Jz, Jz, Jz, Jz, Jz, Jz, Jz, Jz,  // 1000cccc Jcc
  M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_,  // 1001cccc SETcc
  N_, N_, N_, M_, MB, M_, M_, M_, N_, N_, RS, M_, MB, M_, gF, M_,  // 1010xxxx PUSH/POP FS, CPUID, BT, SHLD, PadLock | PUSH/POP GS, RSM, BTS, SHRD, group 15, IMUL
  M_, M_, M_, M_, M_, M_, M_, M_, PC, UM, MB, M_, M_, M_, M_, M_,  // 1011xxxx CMPXCHG, LSS .. MOVZX | POPCNT, UD1, group 8, BTC .. MOVSX
  M_, M_, MB, M_, MB, MB, MB, g9, N_, N_, N_, N_, N_, N_, N_, N_,  // 1100xxxx XADD, CMPPS, MOVNTI, PINSRW, PEXTRW, SHUFPS, group 9 | BSWAP
  M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_,  // 1101xxxx ADDSUB .. PANDN
  M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_,  // 1110xxxx PAVGB .. PXOR
  M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, M_, UM,  // 1111xxxx LDDQU .. PADDD | UD0
}; }();
// clang-format on

/// A map where every opcode has the same form.
constexpr Map uniform_map(Form f) {
  Map map{};
  map.fill(f);
  return map;
}

inline constexpr Map kMap2 = uniform_map(kModrm);                    ///< 0F 38, VEX and EVEX maps 2, 5, 6: ModRM, no immediate
inline constexpr Map kMap3 = uniform_map(kModrm | form(Imm::b));     ///< 0F 3A, VEX and EVEX map 3, XOP map 8: ModRM, imm8
inline constexpr Map kMapXopA = uniform_map(kModrm | form(Imm::d));  ///< XOP map 10: ModRM, imm32

/// Map 1 under VEX and EVEX: PSHUF and groups 12-14, CMP, PINSRW, PEXTRW, SHUFP take an imm8; VEX 77 is VZEROUPPER.
constexpr Map vector_map1(bool evex) {
  Map map = uniform_map(kModrm);
  for (int op : {0x70, 0x71, 0x72, 0x73, 0xc2, 0xc4, 0xc5, 0xc6}) map[op] = kModrm | form(Imm::b);
  map[0x77] = evex ? kBad : 0;
  return map;
}
inline constexpr Map kVexMap1 = vector_map1(false);
inline constexpr Map kEvexMap1 = vector_map1(true);

/// EVEX map 4: map 0 and some of 0F, 0F38 promoted ([APX] "Promoted Instructions"). SHLD and SHRD by imm8 are 24 and 2C, SHA1RNDS4 D4.
inline constexpr Map kEvexMap4 = [] {
  Map map = uniform_map(kModrm);
  for (int op : {0x24, 0x2c, 0x6b, 0x80, 0x83, 0xc0, 0xc1, 0xd4}) map[op] = kModrm | form(Imm::b);
  for (int op : {0x69, 0x81}) map[op] = kModrm | form(Imm::z);
  for (int op : {0xf6, 0xf7}) map[op] = form(Special::group3) | kModrm;
  return map;
}();

/// VEX and EVEX map 7: RDMSR and WRMSRNS (F6), URDMSR and UWRMSR (F8) with the MSR number as imm32.
inline constexpr Map kMap7 = [] {
  Map map = uniform_map(kBad);
  for (int op : {0xf6, 0xf8}) map[op] = kModrm | form(Imm::d);
  return map;
}();

}  // namespace ptd::opcodes
