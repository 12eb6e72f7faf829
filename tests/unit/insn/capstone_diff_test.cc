// Differential test of the Arm classifier against Capstone, over random words similar to every branch row, and over the whole space.
#include <capstone/capstone.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "ptdecode/arm_insn.h"
#include "ptdecode/insn.h"

namespace ptd {
namespace {

constexpr uint64_t kAddress = 0x10000000;

bool starts(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

/// Capstone's result for one instruction.
struct Verdict {
  bool known = false;
  size_t length = 0;
  ArmClass cls = ArmClass::other;
  bool link = false;
  uint64_t target = 0;
  std::string text;
};

/// Returns true if the first operand, or a register list, holds the PC and is written.
bool writes_pc(std::string_view mnemonic, std::string_view operands) {
  static constexpr std::string_view kNoWrite[] = {
      "cmp",    "cmn",   "tst",  "teq",  "str",  "stm",  "push", "pld",  "pli",   "ldrh",  "ldrb",  "ldrsh", "ldrsb", "ldrd",
      "strd",   "ldc",   "stc",  "mcr",  "mrc",  "msr",  "vmrs", "mul",  "smul",  "umul",  "mla",   "mls",   "smla",  "umla",
      "umaal",  "smu",   "smm",  "sml",  "sd",   "usad", "srs",  "swp",  "ldrex", "strex", "ldrt",  "ldrbt", "ldrht", "ldrsht",
      "ldrsbt", "qadd",  "qsub", "qd",   "sxt",  "uxt",  "sel",  "pkh",  "ssat",  "usat",  "rev",   "rbit",  "clz",   "bfi",
      "bfc",    "sbfx",  "ubfx", "movw", "movt", "mrs",  "ssub", "usub", "sadd",  "uadd",  "shadd", "shsub", "uhadd", "uhsub",
      "uqadd",  "uqsub", "sasx", "ssax", "uasx", "usax", "qasx", "qsax", "shasx", "shsax", "uhasx", "uhsax", "uqasx", "uqsax",
      "sdiv",   "udiv",  "lda",  "stl",  "crc",  "v",    "f",    "cdp"};
  const bool conditional_load = mnemonic == "ldrhs" || mnemonic == "ldrhi";  // LDR, not LDRH
  for (const std::string_view& none : kNoWrite) {
    if (!conditional_load && starts(mnemonic, none)) return false;
  }
  if (starts(mnemonic, "ldm") || starts(mnemonic, "pop"))
    return operands.find("pc") != std::string_view::npos && operands.rfind("pc") > operands.find('{');
  return starts(operands, "pc");
}

Verdict judge(csh handle, ExecMode mode, uint32_t word, size_t size) {
  std::array<uint8_t, 4> bytes{};
  std::memcpy(bytes.data(), &word, 4);
  cs_insn* insn = nullptr;
  Verdict verdict;
  if (cs_disasm(handle, bytes.data(), size, kAddress, 1, &insn) == 0) return verdict;
  const std::string_view name = insn->mnemonic, operands = insn->op_str;
  // LDRT to the PC is unpredictable.
  verdict.known = !starts(name, "ldrt");
  verdict.length = insn->size;
  verdict.text = std::string(name) + " " + std::string(operands);
  const size_t hash = operands.rfind('#');
  const bool has_target = hash != std::string_view::npos;
  if (has_target) verdict.target = std::strtoull(std::string(operands.substr(hash + 1)).c_str(), nullptr, 0);
  const bool a64 = mode == ExecMode::a64;
  // Of the wide T32 instructions only loads write the PC; data processing to the PC is unpredictable.
  const bool wide_t32 = mode == ExecMode::t32 && size == 4;
  const auto is_condition = [](std::string_view text) {
    static constexpr std::string_view kConditions[] = {"eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le"};
    return std::find(std::begin(kConditions), std::end(kConditions), text) != std::end(kConditions);
  };
  const std::string_view plain = name.size() > 2 && name.substr(name.size() - 2) == ".w" ? name.substr(0, name.size() - 2) : name;
  const bool bl = plain == "bl" || plain == "blx" || plain == "blr" || plain == "blxns" ||
                  (starts(plain, "bl") && is_condition(plain.substr(2))) || (starts(plain, "blx") && is_condition(plain.substr(3)));
  const bool b = plain == "b" || (a64 ? starts(name, "b.") || starts(name, "bc.") : plain[0] == 'b' && is_condition(plain.substr(1)));
  if (starts(name, "cbz") || starts(name, "cbnz") || starts(name, "tbz") || starts(name, "tbnz") || b || (bl && has_target)) {
    verdict.cls = ArmClass::direct;
    verdict.link = bl;
  } else if (a64 ? (name == "br" || name == "blr" || name == "ret" || name == "eret")
                 : (bl || starts(name, "bx") || starts(name, "rfe") || starts(name, "eret") || name == "tbb" || name == "tbh" ||
                    (starts(name, "subs") && starts(operands, "pc, lr")) ||
                    (writes_pc(name, operands) && (!wide_t32 || starts(name, "ld") || starts(name, "pop"))))) {
    verdict.cls = ArmClass::indirect;
    verdict.link = bl;
  } else if (starts(name, "isb")) {
    verdict.cls = ArmClass::isb;
  }
  cs_free(insn, 1);
  return verdict;
}

struct Neighbourhood {
  uint32_t bits, mask;
};

class Capstone : public testing::Test {
 protected:
  void compare(ExecMode mode, uint32_t word) {
    csh& handle = handles_[mode == ExecMode::a64 ? 0 : mode == ExecMode::a32 ? 1 : 2];
    const bool wide = mode != ExecMode::t32 || (word & 0xffff) >> 11 >= 0x1d;
    const Verdict peer = judge(handle, mode, word, wide ? 4 : 2);
    if (!peer.known) return;
    ++known_;
    std::array<std::byte, 4> bytes{};
    std::memcpy(bytes.data(), &word, 4);
    const ArmInsn own = classify_arm(bytes, mode);
    const bool branch = own.cls == ArmClass::direct || own.cls == ArmClass::indirect || own.cls == ArmClass::isb;
    const ArmClass cls = branch ? own.cls : ArmClass::other;
    if (own.length_bytes == peer.length && cls == peer.cls && own.link == peer.link &&
        (cls != ArmClass::direct || arm_target(own, Ip{kAddress}, mode).value == peer.target)) {
      return;
    }
    if (++differences_ <= 12) {
      ADD_FAILURE() << std::hex << word << " mode " << static_cast<int>(mode) << ": peer " << peer.text << " class "
                    << static_cast<int>(peer.cls) << " target " << peer.target << ", own class " << static_cast<int>(own.cls) << " target "
                    << arm_target(own, Ip{kAddress}, mode).value << " link " << own.link;
    }
  }
  void sweep(ExecMode mode, std::span<const Neighbourhood> places, unsigned each, unsigned anywhere) {
    std::mt19937 random(7);
    for (const Neighbourhood& place : places) {
      for (unsigned i = 0; i < each; ++i) compare(mode, (static_cast<uint32_t>(random()) & ~place.mask) | place.bits);
    }
    for (unsigned i = 0; i < anywhere; ++i) compare(mode, static_cast<uint32_t>(random()));
    EXPECT_GT(known_, anywhere / 8);
  }
  void SetUp() override {
    ASSERT_EQ(cs_open(CS_ARCH_ARM64, CS_MODE_LITTLE_ENDIAN, &handles_[0]), CS_ERR_OK);
    ASSERT_EQ(cs_open(CS_ARCH_ARM, CS_MODE_ARM, &handles_[1]), CS_ERR_OK);
    ASSERT_EQ(cs_open(CS_ARCH_ARM, CS_MODE_THUMB, &handles_[2]), CS_ERR_OK);
  }
  void TearDown() override {
    for (csh& handle : handles_) cs_close(&handle);
  }
  csh handles_[3] = {};
  unsigned known_ = 0, differences_ = 0;
};

TEST_F(Capstone, A64) {
  constexpr Neighbourhood kPlaces[] = {{0x14000000, 0x7c000000}, {0x34000000, 0x7c000000}, {0x54000000, 0xff000010},
                                       {0xd61f0000, 0xff9ffc1f}, {0xd69f03e0, 0xfffffc1f}, {0xd503305f, 0xfffff01f}};
  sweep(ExecMode::a64, kPlaces, 20000, 200000);
}

TEST_F(Capstone, A32) {
  constexpr Neighbourhood kPlaces[] = {{0x0a000000, 0x0e000000}, {0xfa000000, 0xfe000000}, {0xe12fff10, 0xffffffc0},
                                       {0xe8108000, 0xfe108000}, {0xe410f000, 0xfe10f000}, {0xe1a0f000, 0xffeff010}};
  sweep(ExecMode::a32, kPlaces, 20000, 200000);
}

TEST_F(Capstone, T16) {
  for (uint32_t word = 0; word < 0xe800; ++word) compare(ExecMode::t32, word);
  EXPECT_GT(known_, 50000U);
}

TEST_F(Capstone, T32) {
  // The first halfword is the low one.
  constexpr Neighbourhood kPlaces[] = {
      {0x8000f000, 0x8000f800}, {0x8000e810, 0x8000fe50}, {0xf000f850, 0xf000ff70}, {0xf000e8d0, 0xfff0fff0}};
  sweep(ExecMode::t32, kPlaces, 30000, 100000);
}

TEST(ArmInsn, NewerThanThePeer) {
  struct Row {
    uint32_t word;
    InsnClass cls;
    InsnDetail detail;
  };
  // [ARM] "A64 instruction set encoding": pointer authentication, compare and branch, WFET, TSTART
  constexpr Row kRows[] = {
      {0xd65f0bff, InsnClass::ret, InsnDetail::none},           {0xd65f0fff, InsnClass::ret, InsnDetail::none},
      {0xd69f0bff, InsnClass::far_ret, InsnDetail::eret},       {0xd61f081f, InsnClass::jump_indirect, InsnDetail::none},
      {0xd71f0820, InsnClass::jump_indirect, InsnDetail::none}, {0xd63f083f, InsnClass::call_indirect, InsnDetail::none},
      {0xd73f0c41, InsnClass::call_indirect, InsnDetail::none}, {0x74000000, InsnClass::jcc, InsnDetail::none},
      {0xd4000001, InsnClass::other, InsnDetail::svc},          {0x00000000, InsnClass::bad, InsnDetail::none},
  };
  for (const Row& row : kRows) {
    std::array<std::byte, 4> bytes{};
    std::memcpy(bytes.data(), &row.word, 4);
    const Insn insn = classify(bytes, ExecMode::a64);
    EXPECT_EQ(insn.cls, row.cls) << std::hex << row.word;
    EXPECT_EQ(insn.detail, row.detail) << std::hex << row.word;
  }
}

TEST(ArmInsn, ChangesOfInstructionSet) {
  // [ARM] BLX (immediate): T32 at an address that is not a multiple of 4 counts from the address rounded down
  constexpr std::array<std::byte, 4> kBlx = {std::byte{0x00}, std::byte{0xf0}, std::byte{0x02}, std::byte{0xe8}};
  const ArmInsn insn = classify_arm(kBlx, ExecMode::t32);
  EXPECT_EQ(insn.cls, ArmClass::direct);
  EXPECT_TRUE(insn.link);
  EXPECT_EQ(arm_target_mode(insn, ExecMode::t32), ExecMode::a32);
  EXPECT_EQ(arm_target(insn, Ip{0x8002}, ExecMode::t32).value, 0x8008U);
  EXPECT_EQ(direct_target(classify(kBlx, ExecMode::t32), Ip{0x8002}, ExecMode::t32).value, 0x8008U);
}

}  // namespace
}  // namespace ptd
