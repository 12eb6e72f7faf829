// Encodings of every class, transcribed by hand from the manuals' instruction pages.
#include <gtest/gtest.h>

#include "ptdecode/insn.h"
#include "tests/unit/insn/insn_bytes.h"

namespace ptd {
namespace {

using C = InsnClass;
using D = InsnDetail;

struct Row {
  const char* modes;  ///< of "16", "32", "64", concatenated
  const char* bytes;
  int length;  ///< 0: bad
  C cls;
  D detail = D::none;
  int operand_bits = 0;
  int64_t displacement = 0;
};

ExecMode mode_of(const std::string& digits) {
  return digits == "16" ? ExecMode::bits16 : digits == "32" ? ExecMode::bits32 : ExecMode::bits64;
}

void check(const Row& row) {
  const std::string modes = row.modes;
  for (size_t i = 0; i < modes.size(); i += 2) {
    auto bytes = bytes_of(row.bytes);
    const ExecMode mode = mode_of(modes.substr(i, 2));
    const Insn insn = classify(bytes, mode);
    SCOPED_TRACE(std::string(row.bytes) + " in mode " + modes.substr(i, 2));
    EXPECT_EQ(insn.length_bytes, row.length);
    EXPECT_EQ(static_cast<int>(insn.cls), static_cast<int>(row.cls));
    EXPECT_EQ(static_cast<int>(insn.detail), static_cast<int>(row.detail));
    EXPECT_EQ(insn.operand_bits, row.operand_bits);
    EXPECT_EQ(insn.displacement, row.displacement);
    if (row.cls == C::bad) continue;
    EXPECT_FALSE(needs_more_bytes(bytes, mode));
    bytes.resize(bytes.size() + 16, std::byte{0xcc});  // the following bytes do not matter
    EXPECT_EQ(classify(bytes, mode), insn);
    for (size_t cut = 0; cut < insn.length_bytes; ++cut) {
      const Bytes part(bytes.data(), cut);
      EXPECT_EQ(classify(part, mode), Insn{}) << "cut at " << cut;
      EXPECT_TRUE(needs_more_bytes(part, mode)) << "cut at " << cut;
    }
  }
}

TEST(InsnSpec, NearBranches) {  // [SDM] JMP, CALL, RET, Jcc, LOOP/LOOPcc; near branches in 64-bit mode: operand size 64, 66 ignored
  const Row rows[] = {
      {"64", "e9 01020304", 5, C::jump_direct, D::none, 64, 0x04030201},
      {"32", "e9 fcffffff", 5, C::jump_direct, D::none, 32, -4},
      {"16", "e9 feff", 3, C::jump_direct, D::none, 16, -2},
      {"64", "66e9 01020304", 6, C::jump_direct, D::none, 64, 0x04030201},
      {"32", "66e9 0102", 4, C::jump_direct, D::none, 16, 0x0201},
      {"16", "66e9 01020304", 6, C::jump_direct, D::none, 32, 0x04030201},
      {"64", "48e9 01020304", 6, C::jump_direct, D::none, 64, 0x04030201},
      {"64", "66e8 01020304", 6, C::call_direct, D::none, 64, 0x04030201},
      {"32", "66e8 01ff", 4, C::call_direct, D::none, 16, -255},
      {"16", "e8 0102", 3, C::call_direct, D::none, 16, 0x0201},
      {"64", "eb80", 2, C::jump_direct, D::none, 64, -128},
      {"32", "66eb7f", 3, C::jump_direct, D::none, 16, 127},
      {"64", "74fe", 2, C::jcc, D::none, 64, -2},
      {"64", "2e7410", 3, C::jcc, D::none, 64, 16},
      {"64", "660f84 01020304", 7, C::jcc, D::none, 64, 0x04030201},
      {"32", "660f84 0102", 5, C::jcc, D::none, 16, 0x0201},
      {"16", "0f8f 0102", 4, C::jcc, D::none, 16, 0x0201},
      {"64", "e0fe", 2, C::jcc, D::loop, 64, -2},
      {"32", "67e2fe", 3, C::jcc, D::loop, 32, -2},
      {"16", "e105", 2, C::jcc, D::loop, 16, 5},
      {"64", "67e300", 3, C::jcc, D::jcxz, 64, 0},
      {"64", "c3", 1, C::ret, D::none, 64},
      {"64", "f3c3", 2, C::ret, D::none, 64},
      {"32", "c2 0800", 3, C::ret, D::none, 32},
      {"16", "c3", 1, C::ret, D::none, 16},
      {"32", "66c3", 2, C::ret, D::none, 16},
      {"64", "ffe0", 2, C::jump_indirect, D::none, 64},
      {"64", "66ffe0", 3, C::jump_indirect, D::none, 64},
      {"64", "3e41ffe3", 4, C::jump_indirect, D::none, 64},
      {"64", "ff25 01020304", 6, C::jump_indirect, D::none, 64},
      {"32", "66ffd0", 3, C::call_indirect, D::none, 16},
      {"64", "ff542408", 4, C::call_indirect, D::none, 64},
      {"16", "ff16 0102", 4, C::call_indirect, D::none, 16},
  };
  for (const Row& row : rows) check(row);
}

TEST(InsnSpec, FarTransfers) {  // [SDM] volume 3, "Change of Flow Instruction (COFI) Tracing": far transfers
  const Row rows[] = {
      {"32", "9a 01020304 0506", 7, C::far_call, D::far_call},
      {"16", "9a 0102 0304", 5, C::far_call, D::far_call},
      {"32", "66ea 0102 0304", 6, C::far_jump, D::far_jump},
      {"16", "66ea 01020304 0506", 8, C::far_jump, D::far_jump},
      {"64", "9a 01020304 0506", 0, C::bad},
      {"64", "ea 01020304 0506", 0, C::bad},
      {"163264", "ff18", 2, C::far_call, D::far_call},
      {"163264", "ff28", 2, C::far_jump, D::far_jump},
      {"64", "48ff2c24", 4, C::far_jump, D::far_jump},
      {"163264", "ffd8", 0, C::bad},
      {"163264", "ffe8", 0, C::bad},
      {"163264", "ca 0800", 3, C::far_ret, D::far_ret},
      {"163264", "cb", 1, C::far_ret, D::far_ret},
      {"64", "48cb", 2, C::far_ret, D::far_ret},
      {"163264", "cc", 1, C::far_call, D::int3},
      {"163264", "cd80", 2, C::far_call, D::int_n},
      {"1632", "ce", 1, C::far_call, D::into},
      {"64", "ce", 0, C::bad},
      {"163264", "f1", 1, C::far_call, D::int1},
      {"163264", "cf", 1, C::far_ret, D::iret},
      {"64", "48cf", 2, C::far_ret, D::iret},
      {"163264", "0f05", 2, C::far_call, D::syscall},
      {"64", "480f07", 3, C::far_ret, D::sysret},
      {"163264", "0f34", 2, C::far_call, D::sysenter},
      {"163264", "0f35", 2, C::far_ret, D::sysexit},
      {"163264", "0faa", 2, C::far_ret, D::rsm},
      {"163264", "0f01c1", 3, C::far_call, D::vmcall},
      {"163264", "0f01c2", 3, C::far_ret, D::vmlaunch},
      {"163264", "0f01c3", 3, C::far_ret, D::vmresume},
      {"64", "f30f01ca", 4, C::far_ret, D::eretu},  // [FRED] ERETU, ERETS
      {"64", "f20f01ca", 4, C::far_ret, D::erets},
      {"163264", "0f01ca", 3, C::other},  // CLAC
      {"64", "f30f01ec", 4, C::far_ret, D::uiret},
  };
  for (const Row& row : rows) check(row);
}

TEST(InsnSpec, BoundInstructions) {  // instructions to which packets bind, and similar ones
  const Row rows[] = {
      {"163264", "0f22d8", 3, C::mov_cr3},
      {"163264", "0f2218", 3, C::mov_cr3},  // mod is ignored
      {"64", "440f22d8", 4, C::other},      // CR11
      {"64", "410f22d8", 4, C::mov_cr3},
      {"64", "44660f22d8", 5, C::mov_cr3},  // a REX not directly before the opcode is ignored
      {"163264", "0f22e0", 3, C::other},
      {"163264", "0f20d8", 3, C::other},  // from CR3
      {"64", "d58022d8", 4, C::mov_cr3},
      {"64", "d58422d8", 4, C::other},  // R3
      {"64", "d5c022d8", 4, C::other},  // R4: CR19
      {"163264", "f30faee0", 4, C::ptwrite},
      {"64", "f3480fae20", 5, C::ptwrite},
      {"64", "f30fae642408", 6, C::ptwrite},
      {"163264", "0fae20", 3, C::other},  // XSAVE
      {"64", "66f30faee0", 5, C::other},  // 66: #UD
      {"64", "c7f8 01020304", 6, C::other, D::xbegin},
      {"64", "66c7f8 0102", 5, C::other, D::xbegin},
      {"163264", "c6f805", 3, C::other, D::xabort},
      {"163264", "0f01d5", 3, C::other, D::xend},
      {"163264", "0f30", 2, C::other, D::wrmsr},
      {"163264", "0f01c6", 3, C::other, D::wrmsr},  // WRMSRNS
      {"163264", "f4", 1, C::other, D::hlt},
      {"163264", "0f01c9", 3, C::other, D::mwait},
      {"163264", "f20faef0", 4, C::other, D::umwait},
      {"163264", "660faef1", 4, C::other, D::umwait},  // TPAUSE
      {"163264", "f30faef1", 4, C::other},             // UMONITOR
      {"163264", "0fc730", 3, C::other, D::vmptrld},
      {"163264", "660fc730", 4, C::other},  // VMCLEAR
      {"163264", "f30fc730", 4, C::other},  // VMXON
      {"163264", "0fc7f0", 3, C::other},    // RDRAND
      {"64", "f30fc7f0", 4, C::other, D::senduipi},
      {"163264", "f30f1efa", 4, C::other, D::endbr},
      {"163264", "f30f1efb", 4, C::other, D::endbr},
      {"163264", "0f0b", 2, C::other, D::ud},
      {"163264", "0fb9c0", 3, C::other, D::ud},
      {"64", "0fff0425 01020304", 8, C::other, D::ud},
      {"64", "f20f00f0", 4, C::other},    // LKGS
      {"64", "c4e239e008", 5, C::other},  // CMPOXADD; VEX.66.0F38 E0
      {"64", "d500a1 0102030405060708", 11, C::jmpabs, D::none, 64, 0x0807060504030201},
      {"64", "d576a1 0102030405060788", 11, C::jmpabs, D::none, 64, static_cast<int64_t>(0x8807060504030201)},
      {"64", "d508a1 0102030405060708", 0, C::bad},  // W
      {"32", "d500", 2, C::other},                   // AAD
  };
  for (const Row& row : rows) check(row);
}

TEST(InsnSpec, Lengths) {
  const Row rows[] = {
      {"64", "b8 01020304", 5, C::other},
      {"64", "48b8 0102030405060708", 10, C::other},
      {"64", "66b8 0102", 4, C::other},
      {"64", "6648b8 0102030405060708", 11, C::other},
      {"64", "4866b8 0102", 5, C::other},
      {"64", "d508b8 0102030405060708", 11, C::other},
      {"64", "a1 0102030405060708", 9, C::other},
      {"64", "67a1 01020304", 6, C::other},
      {"32", "67a1 0102", 4, C::other},
      {"16", "a3 0102", 3, C::other},
      {"16", "67a3 01020304", 6, C::other},
      {"163264", "c8 010203", 4, C::other},
      {"163264", "f6c0 01", 3, C::other},
      {"163264", "f6c8 01", 3, C::other},
      {"163264", "f6d0", 2, C::other},
      {"64", "48f7c0 01020304", 7, C::other},
      {"64", "66f7c0 0102", 5, C::other},
      {"64", "6648f7c0 01020304", 8, C::other},
      {"64", "68 01020304", 5, C::other},
      {"64", "6668 0102", 4, C::other},
      {"64", "c5f877", 3, C::other},
      {"64", "c5f970c001", 5, C::other},
      {"64", "c4e37914c001", 6, C::other},
      {"1632", "c500", 2, C::other},  // LDS
      {"32", "c400", 2, C::other},
      {"64", "62f17d48efc0", 6, C::other},
      {"64", "62f37d4825c0ff", 7, C::other},
      {"64", "62f5 7c 48 58 c0", 6, C::other},   // VADDPH, map 5
      {"64", "62f67d4898c0", 6, C::other},       // VFMADD132PH, map 6
      {"64", "62f4fc0801c0", 6, C::other},       // APX ADD {evex}
      {"64", "62f47d0881c0 0102", 8, C::other},  // APX ADD r16, imm16
      {"64", "62f4fc0881c0 01020304", 10, C::other},
      {"64", "62f4fc08f7c0 01020304", 10, C::other},  // APX CTEST imm32
      {"64", "62f4fc08f7d0", 6, C::other},            // APX NOT
      {"64", "c4e77bf8c0 01020304", 9, C::other},     // URDMSR imm32
      {"32", "62f4fc0801c0", 0, C::bad},
      {"32", "6208", 2, C::other},                // BOUND
      {"64", "8fe978 80c0", 5, C::other},         // XOP map 9
      {"64", "8fe878c0c001", 6, C::other},        // XOP map 8
      {"64", "8fea7810c001020304", 9, C::other},  // XOP map A
      {"163264", "8fc0", 2, C::other},
      {"163264", "660f78c00102", 6, C::other},  // EXTRQ
      {"163264", "f20f78c10102", 6, C::other},  // INSERTQ
      {"163264", "0f78c0", 3, C::other},        // VMREAD
      {"163264", "0f0fc0b4", 4, C::other},      // 3DNow! PFMUL
      {"163264", "f30fb8c0", 4, C::other},
      {"163264", "0fb8c0", 0, C::bad},
      {"64", "66c5f877", 0, C::bad},
      {"64", "48c5f877", 0, C::bad},
      {"64", "f062f17d48efc0", 0, C::bad},
      {"64", "06", 0, C::bad},
      {"1632", "06", 1, C::other},
      {"1632", "d6", 1, C::other},
      {"64", "d6", 0, C::bad},
      {"64", "d50040", 0, C::bad},
      {"64", "d500e8 01020304", 0, C::bad},
      {"64", "d58080 01020304", 0, C::bad},
      {"64", "41d500 8bc0", 0, C::bad},
      {"64", "66d500 8bc0", 5, C::other},
      {"32", "40", 1, C::other},
      {"64", "8b0525 010203", 6, C::other},
      {"64", "8b0425 01020304", 7, C::other},
      {"16", "8b06 0102", 4, C::other},
      {"16", "678b04 25 01020304", 8, C::other},
      {"32", "678b06 0102", 5, C::other},
      {"163264", "6666666666666666666666666666 90", 15, C::other},
      {"163264", "666666666666666666666666666666 90", 0, C::bad},
  };
  for (const Row& row : rows) check(row);
}

TEST(InsnSpec, Targets) {
  const auto target = [](const char* hex, uint64_t ip, ExecMode mode) {
    return direct_target(classify(bytes_of(hex), mode), Ip{ip}, mode).value;
  };
  EXPECT_EQ(target("ebfe", 0xffffffff81000000, ExecMode::bits64), 0xffffffff81000000U);
  EXPECT_EQ(target("e9 fbffffff", 0x1000, ExecMode::bits64), 0x1000U);
  EXPECT_EQ(target("e9 00000000", 0xfffffffffffffffe, ExecMode::bits64), 3U);
  EXPECT_EQ(target("eb10", 0xfffffff8, ExecMode::bits32), 0xaU);       // EIP wraps at 32 bits
  EXPECT_EQ(target("66eb10", 0x12345678, ExecMode::bits32), 0x568bU);  // EIP is cut to 16 bits
  EXPECT_EQ(target("ebf0", 0x4, ExecMode::bits16), 0xfff6U);           // IP wraps at 16 bits
  EXPECT_EQ(target("eb10", 0xf1234, ExecMode::bits16), 0xf1246U);      // CS base not 0
  EXPECT_EQ(target("d500a1 0102030405060708", 0x1000, ExecMode::bits64), 0x0807060504030201U);
  const Insn nop = classify(bytes_of("90"), ExecMode::bits32);
  EXPECT_EQ(next_sequential(nop, Ip{0xffffffff}, ExecMode::bits32).value, 0U);
  EXPECT_EQ(next_sequential(nop, Ip{0xffffffff}, ExecMode::bits64).value, 0x100000000U);
}

}  // namespace
}  // namespace ptd
