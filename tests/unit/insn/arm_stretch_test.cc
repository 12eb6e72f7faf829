// Quick tests of stretches of Arm instructions: each stretch contains only instructions that the classifier permits.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "ptdecode/arm_insn.h"

namespace ptd::test {
namespace {

bool may_pass_plain(const ArmInsn& insn) {
  return insn.cls == ArmClass::other && insn.detail == ArmDetail::none && insn.it_instructions == 0 && insn.length_bytes != 0;
}
bool may_pass_sound(const ArmInsn& insn) { return insn.cls != ArmClass::bad && insn.it_instructions == 0 && insn.length_bytes != 0; }

/// Walks the stretch at the start of `bytes` with the classifier; returns its number of instructions.
uint64_t expect_right(Bytes bytes, ExecMode mode, uint64_t most) {
  for (const bool sound : {false, true}) {
    const ArmStretch stretch = sound ? sound_stretch(bytes, mode, most) : plain_stretch(bytes, mode, most);
    EXPECT_LE(stretch.instructions, most);
    uint64_t at = 0, last = 0;
    for (uint64_t i = 0; i < stretch.instructions; ++i) {
      const ArmInsn insn = classify_arm(bytes.subspan(at), mode);
      EXPECT_TRUE(sound ? may_pass_sound(insn) : may_pass_plain(insn)) << "at " << at;
      last = insn.length_bytes;
      at += last;
    }
    EXPECT_EQ(at, stretch.size_bytes);
    EXPECT_TRUE(stretch.instructions == 0 || last == stretch.last_bytes);
    if (!sound) most = stretch.instructions;
  }
  return most;
}

TEST(ArmStretch, PassesWhatTheClassifierLetsPass) {
  std::mt19937_64 random(7);
  for (const ExecMode mode : {ExecMode::a64, ExecMode::a32, ExecMode::t32}) {
    uint64_t passed = 0;
    for (unsigned round = 0; round < 200000; ++round) {
      std::array<std::byte, 22> bytes{};
      for (size_t at = 0; at + 2 <= bytes.size(); at += 2) {
        const auto half = static_cast<uint16_t>(random());
        std::memcpy(bytes.data() + at, &half, 2);
      }
      // Half of the A32 words with the condition "always", as in most code.
      if (mode == ExecMode::a32 && round % 2 == 0) bytes[3] = (bytes[3] & std::byte{0x0f}) | std::byte{0xe0};
      passed += expect_right(Bytes(bytes).first(1 + random() % bytes.size()), mode, random() % 8);
    }
    EXPECT_GT(passed, 40000U);  // the quick test is useful
  }
}

TEST(ArmStretch, EveryShortT32Instruction) {
  for (uint32_t half = 0; half < 0xe800; ++half) {
    const std::array<std::byte, 2> bytes{static_cast<std::byte>(half), static_cast<std::byte>(half >> 8)};
    (void)expect_right(bytes, ExecMode::t32, 1);
    if (half >> 8 == 0xbf || !may_pass_plain(classify_arm(bytes, ExecMode::t32))) continue;  // IT and hints are left to the classifier
    EXPECT_EQ(plain_stretch(bytes, ExecMode::t32, 1).instructions, 1U) << half;
  }
}

TEST(ArmStretch, EndsAtABranchAndAtTheEnd) {
  // [ARM]: MOV X0, X1; ADD W0, W0, #1; RET
  const std::array<uint32_t, 3> a64{0xaa0103e0, 0x11000400, 0xd65f03c0};
  const Bytes bytes = std::as_bytes(std::span(a64));
  EXPECT_EQ(plain_stretch(bytes, ExecMode::a64, 100).instructions, 2U);
  EXPECT_EQ(sound_stretch(bytes, ExecMode::a64, 100).instructions, 3U);
  EXPECT_EQ(plain_stretch(bytes.first(7), ExecMode::a64, 100).instructions, 1U);
  EXPECT_EQ(plain_stretch(bytes, ExecMode::a64, 1).size_bytes, 4U);
  // MOVS R0, #1; ADD.W R0, R0, R1, of which only half is given
  const std::array<uint16_t, 3> t32{0x2001, 0xeb00, 0x0001};
  EXPECT_EQ(plain_stretch(std::as_bytes(std::span(t32)), ExecMode::t32, 9).size_bytes, 6U);
  EXPECT_EQ(plain_stretch(std::as_bytes(std::span(t32)).first(5), ExecMode::t32, 9).size_bytes, 2U);
  EXPECT_EQ(plain_stretch(bytes, ExecMode::unknown, 9).instructions, 0U);
}

}  // namespace
}  // namespace ptd::test
