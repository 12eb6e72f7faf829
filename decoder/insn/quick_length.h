// The length of the most frequent 64-bit instructions, without the Scanner of insn.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "decoder/insn/opcode_table.h"

namespace ptd::opcodes {

/// What quick_length() needs of an opcode of map 0 or 1: bits 0-3 the Imm, kModrm, kSlow.
inline constexpr uint8_t kSlow = 0x80;

constexpr std::array<uint8_t, 256> quick_map(const Map& map) {
  std::array<uint8_t, 256> quick{};
  for (size_t op = 0; op < quick.size(); ++op) {
    const Form f = map[op];
    const Imm imm = imm_of(f);
    const bool common = special_of(f) == Special::none && (f & (kBad | kBad64)) == 0 &&
                        (imm == Imm::none || imm == Imm::b || imm == Imm::z || imm == Imm::v);
    quick[op] = static_cast<uint8_t>(common ? f & (kModrm | 0xf) : kSlow);
  }
  return quick;
}
inline constexpr std::array<uint8_t, 256> kQuick0 = quick_map(kMap0), kQuick1 = quick_map(kMap1);

/// Bytes of SIB and displacement, by ModRM, with 32 or 64-bit addresses; but see the base of a SIB with mod 0.
inline constexpr std::array<uint8_t, 256> kAddressBytes = [] {
  std::array<uint8_t, 256> sizes{};
  for (unsigned modrm = 0; modrm < 256; ++modrm) {
    const unsigned mod = modrm >> 6, rm = modrm & 7;
    if (mod == 3) continue;
    sizes[modrm] = static_cast<uint8_t>((rm == 4 ? 1 : 0) + (mod == 1 ? 1 : mod == 2 || rm == 5 ? 4 : 0));
  }
  return sizes;
}();

/// Returns the length of a common 64-bit instruction of class `other`: at most one prefix of 66, F2 and F3, a REX, and an opcode of map 0
/// or 1 without special cases. 0: the Scanner must decide. 15 bytes are read.
inline uint32_t quick_length(const uint8_t* bytes) {
  uint32_t pos = 0;
  const bool has66 = bytes[0] == 0x66;
  if (has66 || bytes[0] == 0xf2 || bytes[0] == 0xf3) ++pos;
  uint8_t op = bytes[pos++];
  bool rex_w = false;
  if ((op & 0xf0) == 0x40) {
    rex_w = (op & 8) != 0;
    op = bytes[pos++];
  }
  uint8_t quick = kQuick0[op];
  if (op == 0x0f) quick = kQuick1[bytes[pos++]];
  if ((quick & kSlow) != 0) return 0;
  if ((quick & kModrm) != 0) {
    const uint8_t modrm = bytes[pos++];
    if ((modrm & 0xc7) == 4 && (bytes[pos] & 7) == 5) pos += 4;
    pos += kAddressBytes[modrm];
  }
  const auto imm = static_cast<Imm>(quick & 0xf);
  if (imm == Imm::none) return pos;
  if (imm == Imm::b) return pos + 1;
  if (rex_w) return pos + (imm == Imm::v ? 8 : 4);
  return pos + (has66 ? 2 : 4);
}

}  // namespace ptd::opcodes
