// MadeProgram: encodings of [ARM] "A64 / A32 / T32 instruction set encoding".
#include "tests/coresight/support/made_program.h"

namespace ptd::test {
namespace {

using Kind = MadeInsn::Kind;

constexpr unsigned kInsnsOfRegion = 40;

uint32_t bits(int64_t value, unsigned low, unsigned width) {
  return static_cast<uint32_t>(static_cast<uint64_t>(value) >> low) & ((1U << width) - 1);
}

/// S:I1:I2:imm10:imm11, the first halfword above; `second` tells the branches apart.
uint32_t wide_branch(int64_t offset, uint32_t second) {
  const uint32_t s = bits(offset, 24, 1), j1 = (bits(offset, 23, 1) ^ 1) ^ s, j2 = (bits(offset, 22, 1) ^ 1) ^ s;
  return (0xf000U | s << 10 | bits(offset, 12, 10)) << 16 | second | j1 << 13 | j2 << 11 | bits(offset, 1, 11);
}

}  // namespace

MadeProgram::MadeProgram(std::mt19937& random, uint64_t base, bool with_aarch32)
    : random_(&random), base_(base), with_aarch32_(with_aarch32) {
  bytes_.resize((with_aarch32 ? 3 : 1) * kRegionBytes);
  lay_out(ExecMode::a64);
  if (with_aarch32) {
    lay_out(ExecMode::a32);
    lay_out(ExecMode::t32);
  }
  for (auto& [mode, places] : places_) {
    for (const Place& place : places) {
      MadeInsn& insn = insns_.at(place);
      encode(place, insn, place == places.back());
      write(place, insn);
    }
  }
}

Place MadeProgram::any_of(ExecMode mode) {
  const std::vector<Place>& places = places_.at(mode);
  return places[below(static_cast<uint32_t>(places.size()))];
}

/// Assigns sizes and addresses; the instructions are chosen once all targets are known.
void MadeProgram::lay_out(ExecMode mode) {
  const uint64_t region = mode == ExecMode::a64 ? 0 : mode == ExecMode::a32 ? 1 : 2;
  uint64_t at = base_ + region * kRegionBytes;
  for (unsigned i = 0; i < kInsnsOfRegion; ++i) {
    MadeInsn insn;
    insn.size = mode == ExecMode::t32 && i + 1 != kInsnsOfRegion && below(3) != 0 ? 2 : 4;
    const Place place{mode, at};
    insns_[place] = insn;
    places_[mode].push_back(place);
    at += insn.size;
  }
}

void MadeProgram::encode(const Place& place, MadeInsn& insn, bool last) {
  constexpr unsigned kBranch = 0;  // in each instruction set the first choice is an unconditional branch
  const unsigned choice = last ? kBranch : below(24);
  if (place.mode == ExecMode::a64) encode_a64(place, insn, choice);
  if (place.mode == ExecMode::a32) encode_a32(place, insn, choice);
  if (place.mode == ExecMode::t32) encode_t32(place, insn, choice);
}

void MadeProgram::encode_a64(const Place& place, MadeInsn& insn, unsigned choice) {
  insn.target = any_of(ExecMode::a64);
  const int64_t offset = static_cast<int64_t>(insn.target.address - place.address);
  const auto direct = [&](uint32_t word, bool conditional, bool link) { insn = {Kind::direct, 4, conditional, link, insn.target, word}; };
  const auto other = [&](Kind kind, uint32_t word, bool link) { insn = {kind, 4, false, link, {}, word}; };
  switch (choice) {
    case 0:
      return direct(0x14000000 | bits(offset, 2, 26), false, false);  // B
    case 1:
    case 2:
      return direct(0x54000000 | bits(offset, 2, 19) << 5, true, false);  // B.EQ
    case 3:
      return direct(0xb4000000 | bits(offset, 2, 19) << 5, true, false);  // CBZ
    case 4:
      return direct(0x37000000 | bits(offset, 2, 14) << 5, true, false);  // TBNZ
    case 5:
    case 6:
      return direct(0x94000000 | bits(offset, 2, 26), false, true);  // BL
    case 7:
      return other(Kind::returns, 0xd65f03c0, false);  // RET
    case 8:
      return other(Kind::returns, 0xd65f0bff, false);  // RETAA
    case 9:
      return other(Kind::indirect, 0xd61f0020, false);  // BR
    case 10:
      return other(Kind::indirect, 0xd73f0801, true);  // BLRAA
    case 11:
      return other(Kind::isb, 0xd5033fdf, false);
    case 12:
      return other(Kind::wait, 0xd503207f, false);  // WFI
    case 13:
      return other(Kind::exception_return, 0xd69f03e0, false);  // ERET
    case 14:
      return other(Kind::plain, 0xd4000001, false);  // SVC
    case 15:
      return other(Kind::plain, 0xd5033f9f, false);  // DSB
    case 16:
      return other(Kind::plain, 0xf9400000, false);  // LDR
    default:
      return other(Kind::plain, 0xd503201f, false);  // NOP
  }
}

void MadeProgram::encode_a32(const Place& place, MadeInsn& insn, unsigned choice) {
  insn.target = any_of(choice == 6 ? ExecMode::t32 : ExecMode::a32);
  const int64_t offset = static_cast<int64_t>(insn.target.address - place.address - 8);
  const auto direct = [&](uint32_t word, bool conditional, bool link) { insn = {Kind::direct, 4, conditional, link, insn.target, word}; };
  const auto other = [&](Kind kind, uint32_t word, bool conditional, bool link) { insn = {kind, 4, conditional, link, {}, word}; };
  switch (choice) {
    case 0:
      return direct(0xea000000 | bits(offset, 2, 24), false, false);  // B
    case 1:
    case 2:
      return direct(0x0a000000 | bits(offset, 2, 24), true, false);  // BEQ
    case 3:
    case 4:
      return direct(0xeb000000 | bits(offset, 2, 24), false, true);  // BL
    case 5:
      return direct(0x1b000000 | bits(offset, 2, 24), true, true);  // BLNE
    case 6:
      return direct(0xfa000000 | bits(offset, 1, 1) << 24 | bits(offset, 2, 24), false, true);  // BLX
    case 7:
      return other(Kind::returns, 0xe12fff1e, false, false);  // BX LR
    case 8:
      return other(Kind::returns, 0x012fff1e, true, false);  // BXEQ LR
    case 9:
      return other(Kind::returns, 0xe8bd8010, false, false);  // POP {R4, PC}
    case 10:
      return other(Kind::returns, 0x18bd8010, true, false);  // POPNE {R4, PC}
    case 11:
      return other(Kind::indirect, 0xe12fff11, false, false);  // BX R1
    case 12:
      return other(Kind::indirect, 0xe12fff31, false, true);  // BLX R1
    case 13:
      return other(Kind::indirect, 0xe59ff010, false, false);  // LDR PC
    case 14:
      return other(Kind::isb, 0xf57ff06f, false, false);
    case 15:
      return other(Kind::returns, 0xe1a0f00e, false, false);  // MOV PC, LR
    default:
      return other(Kind::plain, choice < 20 ? 0xe320f000 : 0xe1a00000, false, false);  // NOP; MOV R0, R0
  }
}

void MadeProgram::encode_t32(const Place& place, MadeInsn& insn, unsigned choice) {
  insn.target = any_of(ExecMode::t32);
  const bool to_a32 = insn.size == 4 && choice == 4;
  if (to_a32) insn.target = any_of(ExecMode::a32);
  const uint64_t from = to_a32 ? (place.address + 4) & ~uint64_t{3} : place.address + 4;
  const int64_t offset = static_cast<int64_t>(insn.target.address - from);
  const auto direct = [&](uint32_t word, bool conditional, bool link) {
    insn = {Kind::direct, insn.size, conditional, link, insn.target, word};
  };
  const auto other = [&](Kind kind, uint32_t word, bool link) { insn = {kind, insn.size, false, link, {}, word}; };
  const bool forward = offset >= 0 && offset <= 126;
  if (insn.size == 2) {
    if (choice == 1 || choice == 2) return direct(0xd000 | bits(offset, 1, 8), true, false);                             // BEQ
    if (choice == 3) return direct(0xe000 | bits(offset, 1, 11), false, false);                                          // B
    if (choice == 4 && forward) return direct(0xb100 | bits(offset, 6, 1) << 9 | bits(offset, 1, 5) << 3, true, false);  // CBZ
    if (choice == 5) return other(Kind::returns, 0x4770, false);                                                         // BX LR
    if (choice == 6) return other(Kind::indirect, 0x4708, false);                                                        // BX R1
    if (choice == 7) return other(Kind::indirect, 0x4788, true);                                                         // BLX R1
    if (choice == 8) return other(Kind::returns, 0xbd10, false);                                                         // POP {R4, PC}
    return other(Kind::plain, choice < 16 ? 0xbf00 : 0x2001, false);                                                     // NOP; MOVS R0, #1
  }
  switch (choice) {
    case 0:
      return direct(wide_branch(offset, 0x9000), false, false);  // B
    case 1:
    case 2:  // BEQ
      return direct((0xf000U | bits(offset, 20, 1) << 10 | bits(offset, 12, 6)) << 16 | 0x8000U | bits(offset, 18, 1) << 13 |
                        bits(offset, 19, 1) << 11 | bits(offset, 1, 11),
                    true, false);
    case 3:
    case 5:
      return direct(wide_branch(offset, 0xd000), false, true);  // BL
    case 4:
      return direct(wide_branch(offset, 0xc000), false, true);  // BLX
    case 6:
      return other(Kind::indirect, 0xe8d0f001, false);  // TBB
    case 7:
      return other(Kind::isb, 0xf3bf8f6f, false);
    case 8:
      return other(Kind::returns, 0xe8bd8010, false);  // POP {R4, PC}
    default:
      return other(Kind::plain, choice < 16 ? 0xf3af8000 : 0xf2400000, false);  // NOP; MOVW R0, #0
  }
}

void MadeProgram::write(const Place& place, const MadeInsn& insn) {
  const uint64_t at = place.address - base_;
  const auto put = [&](uint64_t where, uint32_t half) {
    bytes_[where] = static_cast<std::byte>(half);
    bytes_[where + 1] = static_cast<std::byte>(half >> 8);
  };
  if (place.mode == ExecMode::t32) {
    put(at, insn.size == 2 ? insn.word : insn.word >> 16);
    if (insn.size == 4) put(at + 2, insn.word);
  } else {
    put(at, insn.word);
    put(at + 2, insn.word >> 16);
  }
}

}  // namespace ptd::test
