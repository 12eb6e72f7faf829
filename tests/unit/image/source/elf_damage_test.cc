// Damage of ELF files that costs names, lines or segments.
#include "image/source/elf_damage.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <filesystem>

#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

using image_test::SmallElf;
using image_test::TempDir;

SmallElf two_functions() {
  SmallElf elf;
  elf.code = image_test::bytes_of({0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3});
  elf.symbols = {{"alpha", 0x400200, 4}, {"beta", 0x400204, 2}};
  return elf;
}

TEST(ElfDamage, DamagedSymbolTablesAreNamed) {
  const TempDir dir;
  const std::vector<std::byte> whole = two_functions().bytes();
  Elf64_Ehdr header;
  std::memcpy(&header, whole.data(), sizeof header);
  const uint64_t symtab_at = header.e_shoff + 2 * sizeof(Elf64_Shdr), strtab_at = symtab_at + sizeof(Elf64_Shdr);
  Elf64_Shdr symtab;
  std::memcpy(&symtab, whole.data() + symtab_at, sizeof symtab);
  const auto damage_of = [&](const std::vector<std::byte>& bytes) {
    const auto opened = ElfFile::open(dir.write("elf", bytes));
    EXPECT_TRUE(opened.ok());
    return opened.ok() ? find_elf_damage(**opened, true).symbols : std::string();
  };
  const auto with = [&](uint64_t at, uint64_t value, size_t size) {
    std::vector<std::byte> bytes = whole;
    std::memcpy(bytes.data() + at, &value, size);
    return damage_of(bytes);
  };
  EXPECT_EQ(damage_of(whole), "");
  SmallElf nameless = two_functions();
  nameless.symbols.clear();
  EXPECT_EQ(damage_of(nameless.bytes()), "") << "no symbols are no damage";
  const auto field = [](size_t offset) { return static_cast<uint64_t>(offset); };
  EXPECT_NE(with(symtab_at + field(offsetof(Elf64_Shdr, sh_offset)), ~0ULL, 8), "");
  EXPECT_NE(with(symtab_at + field(offsetof(Elf64_Shdr, sh_size)), 1ULL << 40, 8), "");
  EXPECT_NE(with(symtab_at + field(offsetof(Elf64_Shdr, sh_entsize)), 0, 8), "");
  EXPECT_NE(with(symtab_at + field(offsetof(Elf64_Shdr, sh_link)), 2, 4), "");
  EXPECT_NE(with(symtab_at + field(offsetof(Elf64_Shdr, sh_link)), 0xffff'ffff, 4), "");
  EXPECT_NE(with(strtab_at + field(offsetof(Elf64_Shdr, sh_size)), 1ULL << 40, 8), "");
  EXPECT_NE(with(field(offsetof(Elf64_Ehdr, e_shoff)), 1ULL << 40, 8), "");
  EXPECT_EQ(with(symtab.sh_offset + sizeof(Elf64_Sym), 0xffff'ffff, 4), "1 of 3 symbols have no valid name");
}

TEST(ElfDamage, HeadersThatLoseSegmentsOrNamesOfSectionsAreDamage) {
  const TempDir dir;
  std::vector<std::byte> whole = two_functions().bytes();
  Elf64_Ehdr header;
  std::memcpy(&header, whole.data(), sizeof header);
  whole[header.e_shoff + sizeof(Elf64_Shdr)] = std::byte{1};  // .text has a name
  const auto damage_with = [&](size_t at, uint64_t value, size_t size) {
    std::vector<std::byte> bytes = whole;
    std::memcpy(bytes.data() + at, &value, size);
    const auto opened = ElfFile::open(dir.write("elf", bytes));
    return opened.ok() ? find_elf_damage(**opened, false) : ElfDamage{"no ELF file", {}, {}};
  };
  EXPECT_EQ(damage_with(0, 0, 0).symbols + damage_with(0, 0, 0).debug, "");
  constexpr size_t kPhoff = offsetof(Elf64_Ehdr, e_phoff), kPhnum = offsetof(Elf64_Ehdr, e_phnum),
                   kNames = offsetof(Elf64_Ehdr, e_shstrndx);
  for (const uint64_t at : {uint64_t{1} << 62, whole.size() - 8}) EXPECT_NE(damage_with(kPhoff, at, 8).symbols, "") << at;
  for (const uint64_t count : {0U, 0xffffU}) EXPECT_NE(damage_with(kPhnum, count, 2).symbols, "") << count;
  EXPECT_NE(damage_with(sizeof header + offsetof(Elf64_Phdr, p_vaddr), 0x700000, 8).symbols, "") << "no segment holds .text";
  for (const uint64_t section : {0xffffU, 0U, 1U}) EXPECT_NE(damage_with(kNames, section, 2).debug, "") << section;
}

TEST(ElfDamage, MoreProgramHeadersThanAFileOfCodeHasAreDamage) {
  const TempDir dir;
  std::vector<std::byte> bytes = two_functions().bytes();
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_phoff = bytes.size();
  header.e_phnum = 60000;
  Elf64_Phdr load;
  std::memcpy(&load, bytes.data() + sizeof header, sizeof load);
  std::memcpy(bytes.data(), &header, sizeof header);
  for (unsigned i = 0; i < 60000; ++i) image_test::append(bytes, load);
  const auto elf = ElfFile::open(dir.write("elf", bytes));
  ASSERT_TRUE(elf.ok());
  EXPECT_EQ((*elf)->segments().size(), 4096U);
  EXPECT_EQ((*elf)->damage(), "it has 60000 program headers, of which 4096 are read");
}

TEST(ElfDamage, FilesOfThisMachineAreNotDamaged) {
  size_t seen = 0;
  for (const char* folder : {"/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const auto elf = ElfFile::open(entry.path().string());
      if (!elf.ok()) continue;
      const ElfDamage damage = find_elf_damage(**elf, true);
      EXPECT_EQ(damage.symbols + damage.debug, "") << entry.path();
      if (++seen % 400 == 0) break;
    }
  }
  if (seen == 0) GTEST_SKIP() << "no ELF file in /usr/bin or /usr/lib";
}

}  // namespace
}  // namespace ptd
