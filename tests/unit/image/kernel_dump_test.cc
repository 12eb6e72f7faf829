// Dumps of a machine's memory.
#include "image/source/kernel/kernel_dump.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "image/source/elf_file.h"
#include "tests/unit/image/kernel_dump_support.h"

namespace ptd {
namespace {

using namespace image_test;  // NOLINT: Machine and its constants

class KernelDumps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_kdumpfile()) GTEST_SKIP() << "libkdumpfile is not installed";
  }
  Result<KernelDump> read(const std::vector<std::byte>& bytes, const std::vector<std::pair<Ip, uint64_t>>& wanted) const {
    return read_kernel_dump(dir_.write("vmcore", bytes), "x86_64", wanted);
  }
  TempDir dir_;
};

std::vector<std::pair<uint64_t, size_t>> places(const KernelDump& dump) {
  std::vector<std::pair<uint64_t, size_t>> all;
  for (const MemoryRange& range : dump.ranges) all.emplace_back(range.ip.value, range.code.bytes.size());
  return all;
}

TEST_F(KernelDumps, CodeIsReadThroughThePageTablesWithoutThePagesThatAreMissing) {
  Machine machine;
  machine.symbol("_stext", 16 * kPage);
  machine.line("BUILD-ID=00112233445566778899aabbccddeeff00112233");
  const auto dump =
      read(machine.dump(),
           {{Ip{kModule}, 100}, {Ip{kDumpedText + 8}, kPage}, {Ip{kModule + 8}, 3 * kPage}, {Ip{kTextBase + 100 * kPage}, kPage}});
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  EXPECT_EQ(dump->stext, kDumpedText);
  EXPECT_EQ(dump->build_id, "00112233445566778899aabbccddeeff00112233");
  using Places = std::vector<std::pair<uint64_t, size_t>>;
  EXPECT_EQ(places(*dump), (Places{{kDumpedText, 2 * kPage}, {kModule, 2 * kPage}, {kModule + 3 * kPage, kPage}}));
  const std::array<uint8_t, 3> content = {0x90, 0xcc, 0x91};
  for (size_t i = 0; i < content.size(); ++i) {
    const Bytes bytes = dump->ranges[i].code.bytes;
    EXPECT_TRUE(std::ranges::all_of(bytes, [&](std::byte byte) { return byte == std::byte{content[i]}; })) << i;
  }
  EXPECT_TRUE(dump->symbols.empty());
}

TEST(Kcore, OfAnotherMachineOrDamagedIsRefused) {
  const TempDir dir;
  SmallElf core;
  core.type = ET_CORE;
  core.address = 0xffffffff81000000;
  core.code.resize(16);
  const std::vector<std::byte> bytes = core.bytes();
  EXPECT_TRUE(read_kcore(dir.write("kcore", bytes), CodeFamily::x86).ok());
  const auto with_header = [&](auto change) {
    std::vector<std::byte> changed = bytes;
    Elf64_Ehdr header;
    std::memcpy(&header, changed.data(), sizeof header);
    change(header);
    std::memcpy(changed.data(), &header, sizeof header);
    const auto read = read_kcore(dir.write("changed", changed), CodeFamily::x86);
    return read.ok() ? std::string() : read.error().message;
  };
  EXPECT_EQ(with_header([](Elf64_Ehdr& header) { header.e_machine = EM_AARCH64; }),
            dir.path() + "/changed is for Arm processors (e_machine 183), but the trace is of an x86 processor");
  EXPECT_EQ(with_header([](Elf64_Ehdr& header) { header.e_phentsize = 64; }),
            dir.path() + "/changed is damaged: its program headers have 64 bytes each, not 56");
}

TEST_F(KernelDumps, ADumpOfAnotherArchitectureIsRefused) {
  Machine machine;
  machine.symbol("_stext", 16 * kPage);
  const std::string path = dir_.write("vmcore", machine.dump());
  const auto dump = read_kernel_dump(path, "aarch64", {{Ip{kDumpedText}, kPage}});
  ASSERT_FALSE(dump.ok());
  EXPECT_EQ(dump.error().message, path + " is of a machine of another architecture (x86_64) than the recording (aarch64)");
}

TEST_F(KernelDumps, NamesAreReadWithBothFormsOfAddresses) {
  const std::vector<std::string> names = {"Acounter", "Tstart", "T_stext", "tlast"};
  struct Case {
    std::vector<int32_t> offsets;
    uint64_t base;
    uint64_t counter;
  };
  // Without per-cpu addresses, all offsets are from the base. With them, those from the base are negative, minus 1.
  for (const Case& one :
       {Case{{0, 0x1000, 0x10000, 0x10020}, kTextBase, kTextBase}, Case{{0x30, -0x1001, -0x10001, -0x10021}, kTextBase, 0x30}}) {
    Machine machine;
    machine.symbol("_stext", 16 * kPage);
    machine.put_names(names, one.offsets, one.base);
    const auto dump = read(machine.dump(), {{Ip{kDumpedText}, kPage}});
    ASSERT_TRUE(dump.ok()) << dump.error().message;
    ASSERT_EQ(dump->symbols.size(), 4U);
    EXPECT_EQ(address_of(dump->symbols, "counter"), one.counter);
    EXPECT_EQ(address_of(dump->symbols, "start"), kTextBase + 0x1000);
    EXPECT_EQ(address_of(dump->symbols, "last"), kDumpedText + 0x20);
    EXPECT_EQ(dump->symbols.back().type, 't');
  }
}

TEST_F(KernelDumps, LongNamesHaveLengthsOfTwoBytes) {
  Machine machine;
  machine.symbol("_stext", 16 * kPage);
  machine.put_names({"T_stext", "tlast"}, {0x10000, 0x10020}, kTextBase, 0x80);
  const auto dump = read(machine.dump(), {{Ip{kDumpedText}, kPage}});
  ASSERT_TRUE(dump.ok()) << dump.error().message;
  EXPECT_EQ(address_of(dump->symbols, "last"), kDumpedText + 0x20);
}

TEST_F(KernelDumps, NamesThatContradictTheDumpAreNotUsed) {
  const std::vector<std::vector<std::string>> bad = {{"Tstart", "T_stext"}, {"Tstart", "Tother"}, {"T_stext", "T"}};
  for (const std::vector<std::string>& names : bad) {
    Machine machine;
    machine.symbol("_stext", 16 * kPage);
    machine.put_names(names, {0x10000, 0x10020}, kTextBase);
    const auto dump = read(machine.dump(), {{Ip{kDumpedText}, kPage}});
    ASSERT_TRUE(dump.ok()) << dump.error().message;
    EXPECT_TRUE(dump->symbols.empty()) << names[0] << names[1];
    EXPECT_TRUE(dump->has_bad_names) << names[0] << names[1];
  }
}

TEST_F(KernelDumps, NamesLongerThanLinuxAllowsAreNotUsed) {
  for (const size_t letters : {512, 513}) {  // KSYM_NAME_LEN
    Machine machine;
    machine.symbol("_stext", 16 * kPage);
    machine.put_names({"T_stext", "t\x01\x02"}, {0x10000, 0x10020}, kTextBase);
    machine.put_token(1, 0x200, 500);
    machine.put_token(2, 0x400, letters - 500);
    const auto dump = read(machine.dump(), {{Ip{kDumpedText}, kPage}});
    ASSERT_TRUE(dump.ok()) << dump.error().message;
    EXPECT_EQ(dump->symbols.size(), letters == 512 ? 2U : 0U);
    EXPECT_EQ(dump->has_bad_names, letters != 512);
  }
}

TEST_F(KernelDumps, ACrashOfTheLibraryIsAnError) {
  Machine machine;
  machine.symbol("_stext", 16 * kPage);
  std::vector<std::byte> bytes = machine.dump();
  const uint64_t sections = 0x7f0000;  // past the end
  std::memcpy(&bytes[offsetof(Elf64_Ehdr, e_shoff)], &sections, sizeof sections);
  const auto dump = read(bytes, {{Ip{kDumpedText}, kPage}});
  ASSERT_FALSE(dump.ok());
  EXPECT_TRUE(dump.error().message.ends_with("/vmcore: the dump is damaged: the process that read it was ended by signal 11"))
      << dump.error().message;
}

TEST_F(KernelDumps, OtherFilesAndEmptyDumpsAreNamed) {
  Machine without_info;
  const std::vector<std::pair<Ip, uint64_t>> wanted = {{Ip{kDumpedText}, kPage}};
  const std::vector<std::byte> whole = without_info.dump();
  const auto no_info = read(whole, wanted);
  ASSERT_FALSE(no_info.ok());
  EXPECT_EQ(no_info.error().code, ErrorCode::missing_part);
  const auto text = read_kernel_dump(dir_.write("text", std::string(10000, 'x')), "x86_64", wanted);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::unknown_format);
  EXPECT_NE(text.error().message.find("/text: "), std::string::npos) << text.error().message;
  EXPECT_EQ(read_kernel_dump(dir_.path() + "/none", "x86_64", wanted).error().code, ErrorCode::not_found);
  Machine machine;
  machine.symbol("_stext", 16 * kPage);
  const auto elsewhere = read(machine.dump(), {{Ip{kTextBase + 200 * kPage}, kPage}, {Ip{~uint64_t{0}}, ~uint64_t{0}}, {Ip{0}, 0}});
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_EQ(elsewhere.error().code, ErrorCode::missing_part);
}

TEST_F(KernelDumps, CutDumpsKeepWhatTheyHave) {
  Machine machine;
  machine.symbol("_stext", 16 * kPage);
  machine.put_names({"T_stext", "tlast"}, {0x10000, 0x10020}, kTextBase);
  std::vector<std::byte> bytes = machine.dump();
  const size_t whole = bytes.size();
  for (size_t size = whole - 1; size > 4 * kPage; size -= 3001) {
    bytes.resize(size);
    const auto dump = read(bytes, {{Ip{kDumpedText}, 2 * kPage}});
    if (size >= 2 * kPage + 18 * kPage) {
      ASSERT_TRUE(dump.ok()) << size << dump.error().message;
      EXPECT_EQ(dump->ranges.front().code.bytes.size(), 2 * kPage) << size;
    } else {
      EXPECT_TRUE(!dump.ok() || dump->ranges.front().code.bytes.size() <= 2 * kPage) << size;
    }
  }
}

TEST_F(KernelDumps, DamagedDumpsGiveAnErrorOrOtherBytes) {
  Machine machine;
  machine.symbol("_stext", 16 * kPage);
  machine.put_names({"T_stext", "tlast"}, {0x10000, 0x10020}, kTextBase);
  const std::vector<std::byte> whole = machine.dump();
  std::mt19937 random(1);
  size_t read_ok = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<std::byte> bytes = whole;
    for (int change = 0; change < 4; ++change) {
      // Headers and VMCOREINFO, page tables, or kallsyms.
      const size_t at = std::array<size_t, 3>{random() % (2 * kPage), 3 * kPage + random() % (5 * kPage),
                                              8 * kPage + random() % (6 * kPage)}[random() % 3];
      bytes[at] = static_cast<std::byte>(random());
    }
    const auto dump = read(bytes, {{Ip{kDumpedText}, 2 * kPage}, {Ip{kModule}, 4 * kPage}});
    if (!dump.ok()) continue;
    ++read_ok;
    for (const MemoryRange& range : dump->ranges) EXPECT_LE(range.code.bytes.size(), 4 * kPage);
  }
  EXPECT_GT(read_ok, 100U);
}

}  // namespace
}  // namespace ptd
