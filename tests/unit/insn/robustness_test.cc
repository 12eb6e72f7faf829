// The classifier and the disassembler on bytes of any content and length.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <random>

#include "ptdecode/disassembler.h"
#include "ptdecode/insn.h"
#include "tests/unit/insn/encodings.h"
#include "tests/unit/insn/insn_bytes.h"

namespace ptd {
namespace {

constexpr ExecMode kModes[] = {ExecMode::bits16, ExecMode::bits32, ExecMode::bits64};

/// Returns random bytes in which prefixes and escapes are more frequent.
std::byte random_byte(std::mt19937& random) {
  static constexpr uint8_t kFrequent[] = {0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x0f, 0x48, 0x62, 0xc4, 0xc5, 0xd5, 0x8f, 0x38, 0x3a};
  const auto r = static_cast<uint32_t>(random());
  return static_cast<std::byte>((r & 0x300) == 0 ? kFrequent[(r >> 10) % sizeof kFrequent] : r & 0xff);
}

// Each buffer is a heap block of exactly its size, so that AddressSanitizer detects reads past it.
TEST(InsnRobustness, RandomBytesOfAnyLength) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 200000; ++round) {
    const size_t size = random() % 18;
    const auto block = std::make_unique<std::byte[]>(size);
    for (size_t i = 0; i < size; ++i) block[i] = random_byte(random);
    const Bytes bytes(block.get(), size);
    for (ExecMode mode : kModes) {
      const Insn insn = classify(bytes, mode);
      ASSERT_LE(insn.length_bytes, std::min<size_t>(size, 15));
      ASSERT_EQ(insn.length_bytes == 0, insn.cls == InsnClass::bad);
      if (insn.cls == InsnClass::bad) {
        ASSERT_EQ(insn, Insn{});
        continue;
      }
      // No byte after the instruction matters, and every shorter piece is reported as cut, not as invalid.
      ASSERT_FALSE(needs_more_bytes(bytes, mode));
      ASSERT_EQ(classify(bytes.first(insn.length_bytes), mode), insn);
      for (size_t cut = 0; cut < insn.length_bytes; ++cut) {
        const auto piece = std::make_unique<std::byte[]>(cut);
        std::copy_n(block.get(), cut, piece.get());
        ASSERT_EQ(classify({piece.get(), cut}, mode), Insn{});
        ASSERT_TRUE(needs_more_bytes({piece.get(), cut}, mode));
      }
    }
  }
}

TEST(InsnRobustness, UnknownModeIsBad) {
  EXPECT_EQ(classify(bytes_of("90"), ExecMode::unknown), Insn{});
  EXPECT_FALSE(needs_more_bytes(bytes_of("90"), ExecMode::unknown));
  EXPECT_FALSE(needs_more_bytes({}, ExecMode::unknown));
  EXPECT_TRUE(needs_more_bytes({}, ExecMode::bits64));
}

TEST(Disassembler, RandomBytes) {
  std::mt19937 random(20240608);
  const Disassembler att(Disassembler::Syntax::att), intel(Disassembler::Syntax::intel);
  for (int round = 0; round < 20000; ++round) {
    const size_t size = 1 + random() % 17;
    const auto block = std::make_unique<std::byte[]>(size);
    for (size_t i = 0; i < size; ++i) block[i] = random_byte(random);
    for (ExecMode mode : kModes) {
      ASSERT_FALSE(att.text({block.get(), size}, Ip{random()}, mode).empty());
      ASSERT_FALSE(intel.text({block.get(), size}, Ip{random()}, mode).empty());
    }
  }
}

struct Text {
  const char* bytes;
  const char* att;
  const char* intel;
};

TEST(Disassembler, Texts) {
  const Text rows[] = {
      {"e9 fb0f0000", "jmp 0x2000", "jmp 0x2000"},  // at 0x1000: targets are absolute
      {"74fe", "jz 0x1000", "jz 0x1000"},
      {"4889c3", "mov %rax, %rbx", "mov rbx, rax"},
      {"f30f01ca", "eretu", "eretu"},
      {"f20f01ca", "erets", "erets"},
      {"d500a1 0102030405060708", "jmpabs $0x807060504030201", "jmpabs 0x807060504030201"},
      {"f20f00f0", "lkgs %ax", "lkgs ax"},
      {"f2410f00f1", "lkgs %r9w", "lkgs r9w"},
      {"0f01c6", "wrmsrns", "wrmsrns"},
      {"c4e239e008", ".byte 0xc4, 0xe2, 0x39, 0xe0, 0x08", ".byte 0xc4, 0xe2, 0x39, 0xe0, 0x08"},  // CMPOXADD: no mnemonic, right length
      {"d6", ".byte 0xd6", ".byte 0xd6"},
      {"0f", ".byte 0x0f", ".byte 0x0f"},
      {"", ".byte", ".byte"},
  };
  const Disassembler att, intel(Disassembler::Syntax::intel);
  for (const Text& row : rows) {
    const auto bytes = bytes_of(row.bytes);
    EXPECT_EQ(att.text(bytes, Ip{0x1000}, ExecMode::bits64), row.att) << row.bytes;
    EXPECT_EQ(intel.text(bytes, Ip{0x1000}, ExecMode::bits64), row.intel) << row.bytes;
  }
}

// Prints the time of one classify() over common encodings. Not a gate.
TEST(InsnSpeed, NanosecondsEach) {
  const auto text = bytes_of(
      "4889e5 e812345678 0f1f4000 7405 48 8b 45 f8 c3 0f84 11223344 31c0 4c 8d 25 11 22 33 44 41 54 83c001 c5f86f00 f30f7f06 ffe0 "
      "b801000000 66 90");
  uint64_t count = 0, length = 0;
  const std::clock_t start = std::clock();  // processor time: other programs do not count
  for (int round = 0; round < 200000; ++round) {
    for (size_t at = 0; at < text.size(); ++count) {
      const Insn insn = classify(Bytes(text).subspan(at), ExecMode::bits64);
      ASSERT_NE(insn.length_bytes, 0);
      at += insn.length_bytes;
      length += insn.length_bytes;
    }
  }
  const double ns = 1e9 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(length, 200000 * text.size());
  std::printf("classify: %.1f ns each over %llu calls\n", ns / static_cast<double>(count), static_cast<unsigned long long>(count));
}

}  // namespace
}  // namespace ptd
