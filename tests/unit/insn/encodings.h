// Enumerates x86 encodings: prefixes x opcodes x ModRM bytes, for the differential tests.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "ptdecode/insn.h"

namespace ptd {

/// One encoding, extended with operand bytes to 24.
using Encoding = std::array<std::byte, 24>;

/// How densely to enumerate.
struct Density {
  bool full = false;
  static Density from_environment() {
    const char* env = std::getenv("PTDECODE_EXHAUSTIVE");
    return {env != nullptr && env[0] == '1'};
  }
};

/// Returns the index of the first byte that is neither a legacy prefix nor, in 64-bit mode, a REX; size() - 1 if there is none.
inline size_t opcode_at(std::span<const std::byte> bytes, ExecMode mode) {
  static const std::string kPrefixes("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3");
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto value = std::to_integer<unsigned>(bytes[i]);
    const bool rex = mode == ExecMode::bits64 && (value & 0xf0) == 0x40;
    if (!rex && kPrefixes.find(static_cast<char>(value)) == std::string::npos) return i;
  }
  return bytes.size() - 1;
}

class EncodingBuilder {
 public:
  EncodingBuilder& add(std::initializer_list<int> bytes) {
    for (int b : bytes) bytes_[size_++] = static_cast<std::byte>(b);
    return *this;
  }
  EncodingBuilder& add(const std::vector<uint8_t>& bytes) {
    for (uint8_t b : bytes) bytes_[size_++] = static_cast<std::byte>(b);
    return *this;
  }
  /// Appends operand bytes: ModRM and SIB as given, then a fixed tail that is not a prefix.
  Encoding finish(int modrm, int sib) {
    add({modrm, sib});
    for (int tail = 0x11; size_ < bytes_.size(); tail += 0x10) bytes_[size_++] = static_cast<std::byte>(tail & 0x7f);
    return bytes_;
  }

 private:
  Encoding bytes_{};
  size_t size_ = 0;
};

/// Returns the ModRM bytes to try: all, or 3 per mod and reg (no SIB, SIB, base 5 or 6).
inline std::vector<int> modrm_bytes(bool all) {
  std::vector<int> out;
  for (int modrm = 0; modrm < 256; ++modrm) {
    const int rm = modrm & 7;
    if (all || rm == 0 || rm == 4 || rm == 5) out.push_back(modrm);
  }
  return out;
}

/// Returns the SIB bytes to try after this ModRM: with rm == 4 base 0, base 5 and all ones.
inline std::vector<int> sib_bytes(int modrm) {
  if ((modrm & 7) == 4 && (modrm >> 6) != 3) return {0x00, 0x25, 0xff};
  return {0x05};
}

inline std::vector<std::vector<uint8_t>> legacy_prefixes(ExecMode mode, bool full) {
  std::vector<std::vector<uint8_t>> legacy = {{}, {0x66}, {0x67}, {0xf2}, {0xf3}, {0xf0}};
  if (full) {
    for (std::vector<uint8_t> more : {std::vector<uint8_t>{0x66, 0x67},
                                      {0x66, 0xf2},
                                      {0x66, 0xf3},
                                      {0xf2, 0xf3},
                                      {0xf3, 0xf2},
                                      {0x2e},
                                      {0x3e},
                                      {0x65},
                                      {0xf0, 0xf3},
                                      {0xf3, 0x66, 0x67}})
      legacy.push_back(more);
  }
  if (mode != ExecMode::bits64) return legacy;
  std::vector<std::vector<uint8_t>> out = legacy;
  const std::vector<uint8_t> rexes = full ? std::vector<uint8_t>{0x40, 0x41, 0x44, 0x48, 0x4f} : std::vector<uint8_t>{0x44, 0x48};
  for (const auto& prefixes : legacy) {
    for (uint8_t rex : rexes) {
      auto with = prefixes;
      with.push_back(rex);
      out.push_back(with);
    }
    if (!full || prefixes.size() != 1) continue;
    out.push_back({0x48, prefixes[0]});  // a REX that is ignored
  }
  if (full) out.push_back({0x48, 0x41});
  return out;
}

/// Visits maps 0, 0F, 0F38, 0F3A. If not full: every ModRM of the opcodes of maps 0 and 0F, a sample of the others.
template <class Visit>
void for_each_legacy(ExecMode mode, Density density, Visit&& visit) {
  static const std::vector<std::vector<uint8_t>> kEscapes = {{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}};
  for (const auto& prefixes : legacy_prefixes(mode, density.full)) {
    for (const auto& escape : kEscapes) {
      const auto modrms = modrm_bytes(density.full || (prefixes.size() <= 1 && escape.size() <= 1));
      for (int opcode = 0; opcode < 256; ++opcode) {
        for (int modrm : modrms) {
          for (int sib : sib_bytes(modrm)) visit(EncodingBuilder().add(prefixes).add(escape).add({opcode}).finish(modrm, sib), mode);
        }
      }
    }
  }
}

/// Visits the C5, C4, 8F (XOP), 62 and D5 (REX2) prefixes, every map and opcode; the other payload fields are sampled.
template <class Visit>
void for_each_vector(ExecMode mode, Density density, Visit&& visit) {
  const auto modrms = modrm_bytes(density.full);
  const auto each = [&](const std::vector<uint8_t>& prefix) {
    for (int opcode = 0; opcode < 256; ++opcode) {
      if (!density.full) {  // one ModRM per opcode and payload, which varies
        const int modrm = modrms[static_cast<size_t>(opcode * 7 + prefix.back() * 3) % modrms.size()];
        visit(EncodingBuilder().add(prefix).add({opcode}).finish(modrm, 0x25), mode);
        continue;
      }
      for (size_t i = prefix.back() % 8U; i < modrms.size(); i += 8) {
        for (int sib : sib_bytes(modrms[i])) visit(EncodingBuilder().add(prefix).add({opcode}).finish(modrms[i], sib), mode);
      }
    }
  };
  const auto u8 = [](int v) { return static_cast<uint8_t>(v); };
  for (int payload = 0; payload < 256; payload += density.full ? 1 : 5) {
    each({0xc5, u8(payload)});
    if (mode == ExecMode::bits64) each({0xd5, u8(payload)});
    if (mode == ExecMode::bits64) each({0x66, 0xd5, u8(payload)});
    if (mode == ExecMode::bits64) each({0xf3, 0xd5, u8(payload)});
  }
  for (int high : {0xe0, 0xc0}) {
    for (int map = 0; map < 32; ++map) {
      for (int second = 0; second < 256; second += density.full ? 1 : 15) {
        each({0xc4, u8(high | map), u8(second)});
        each({0x8f, u8(high | map), u8(second)});
      }
    }
    for (int p0 = 0; p0 < 16; ++p0) {
      for (int p1 = 0; p1 < 256; p1 += density.full ? 1 : 17) {
        for (int p2 : {0x08, 0x48, 0x4f, 0x18, 0x80}) {
          if (density.full || p2 == 0x48 || p2 == 0x08) each({0x62, u8(high | 0x10 | p0), u8(p1), u8(p2)});
        }
      }
    }
  }
}

}  // namespace ptd
