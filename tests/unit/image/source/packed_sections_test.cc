// Symbols in .gnu_debugdata and debug sections compressed with zstd, as a packager makes them, and damaged.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "image/base/mapped_file.h"
#include "image/source/elf_damage.h"
#include "image/source/packed/unpack.h"
#include "image/symbols/file_symbols.h"
#include "image/symbols/source_lines.h"
#include "image/symbols/source_warnings.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

using image_test::SmallElf;
using image_test::TempDir;

bool runs(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

std::vector<std::byte> content_of(const std::string& path) {
  const auto file = MappedFile::open(path);
  return file.ok() ? std::vector<std::byte>((*file)->bytes().begin(), (*file)->bytes().end()) : std::vector<std::byte>();
}

std::vector<std::string> names_of(const ElfFile& elf) {
  std::vector<std::string> names;
  for (const ElfSymbol& symbol : elf.read_symbols()) names.push_back(symbol.name);
  return names;
}

class MiniDebugInfo : public testing::Test {
 protected:
  void SetUp() override {
    if (!runs("xz --version >/dev/null && objcopy --version >/dev/null")) GTEST_SKIP() << "no xz or objcopy";
    const std::vector<std::byte> probe(1);
    if (unpack_xz(probe).error().code == ErrorCode::unsupported_compression) GTEST_SKIP() << "this build has no liblzma";
    full_.address = 0x400000;
    full_.code.resize(16);
    full_.symbols = {{"hidden", 0x400204, 4}, {"main", 0x400200, 4}};
    dir_.write("full", full_.bytes());
  }
  std::string in(const std::string& name) const { return dir_.path() + "/" + name; }
  /// A file whose only symbols are in a .gnu_debugdata with this content.
  std::vector<std::byte> with_mini(const std::vector<std::byte>& packed) const {
    dir_.write("packed", packed);
    EXPECT_TRUE(runs("gcc -x c -shared -nostdlib -o " + in("bare") + " - </dev/null && strip " + in("bare") +
                     " && objcopy --add-section .gnu_debugdata=" + in("packed") + " " + in("bare") + " " + in("mini")));
    return content_of(in("mini"));
  }
  std::vector<std::byte> packed(const std::vector<std::byte>& content) const {
    dir_.write("content", content);
    EXPECT_TRUE(runs("xz -c " + in("content") + " >" + in("content.xz")));
    return content_of(in("content.xz"));
  }
  std::string damage_of(const std::vector<std::byte>& file) const {
    const auto elf = ElfFile::open(dir_.write("file", file));
    EXPECT_TRUE(elf.ok());
    if (!elf.ok()) return "no ELF file";
    (void)(*elf)->read_symbols();
    return find_elf_damage(**elf, true).mini;
  }
  TempDir dir_;
  SmallElf full_;
};

TEST_F(MiniDebugInfo, ItsSymbolsAreRead) {
  const auto elf = ElfFile::open(dir_.write("file", with_mini(packed(full_.bytes()))));
  ASSERT_TRUE(elf.ok());
  EXPECT_FALSE((*elf)->has_symtab());
  EXPECT_EQ(names_of(**elf), (std::vector<std::string>{"main", "hidden"}));
  EXPECT_EQ(find_elf_damage(**elf, true).mini, "");
}

TEST_F(MiniDebugInfo, DamageIsNamed) {
  const std::vector<std::byte> good = packed(full_.bytes());
  std::vector<std::byte> cut = good, changed = good;
  cut.resize(good.size() / 2);
  changed[good.size() / 2] ^= std::byte{0xff};
  EXPECT_EQ(damage_of(with_mini(cut)), "its .gnu_debugdata is damaged (it ends early)");
  EXPECT_EQ(damage_of(with_mini(changed)), "its .gnu_debugdata is damaged (its compressed data is damaged)");
  EXPECT_EQ(damage_of(with_mini(std::vector<std::byte>(100))), "its .gnu_debugdata is damaged (it is not compressed with xz)");
  EXPECT_EQ(damage_of(with_mini(packed(std::vector<std::byte>(100)))), "its .gnu_debugdata is damaged (it holds no ELF file)");
  EXPECT_EQ(damage_of(with_mini(packed(std::vector<std::byte>(40U << 20)))),
            "its .gnu_debugdata is damaged (it would uncompress to far more than its size)");
}

TEST_F(MiniDebugInfo, DamageMattersOnlyWithoutASymbolTable) {
  dir_.write("damaged", with_mini(std::vector<std::byte>(100)));
  for (const bool has_debug_file : {false, true}) {
    auto warnings = std::make_shared<SourceWarnings>();
    std::vector<std::string> paths = {in("damaged")};
    if (has_debug_file) paths.push_back(in("full"));
    FileSymbols symbols("damaged", paths, warnings, nullptr, nullptr);
    (void)symbols.offsets_of("main");
    EXPECT_EQ(warnings->texts().size(), has_debug_file ? 0U : 1U);
  }
}

TEST_F(MiniDebugInfo, WhatFollowsTheStreamDoesNotCount) {
  std::vector<std::byte> padded = packed(std::vector<std::byte>(40U << 20));
  padded.resize(4U << 20);
  EXPECT_EQ(damage_of(with_mini(padded)), "its .gnu_debugdata is damaged (it would uncompress to far more than its size)");
}

TEST_F(MiniDebugInfo, ADictionaryThatNeedsMuchMemoryIsRefused) {
  dir_.write("content", full_.bytes());
  ASSERT_TRUE(runs("xz -c --lzma2=dict=1GiB " + in("content") + " >" + in("content.xz")));
  EXPECT_EQ(damage_of(with_mini(content_of(in("content.xz")))), "its .gnu_debugdata is damaged (uncompressing it takes too much memory)");
}

TEST_F(MiniDebugInfo, HostileContentIsReadOrRefused) {
  const std::vector<std::byte> good = with_mini(packed(full_.bytes()));
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::byte> bad = good;
    for (unsigned i = 0; i < 1 + random() % 4; ++i) bad[random() % bad.size()] = static_cast<std::byte>(random());
    const auto elf = ElfFile::open(dir_.write("bad", bad));
    if (!elf.ok()) continue;
    EXPECT_LE((*elf)->read_symbols().size(), bad.size());
    (void)find_elf_damage(**elf, true);
  }
}

/// A program with debug information, plain and compressed with zstd.
class ZstdSections : public testing::Test {
 protected:
  void SetUp() override {
    dir_.write("a.c", "int twice(int x) { return 2 * x; }\nint main(void) { return twice(21); }\n");
    ASSERT_TRUE(runs("gcc -g -o " + path_ + " " + dir_.path() + "/a.c"));
    if (!runs("objcopy --compress-debug-sections=zstd " + path_ + " " + packed_)) GTEST_SKIP() << "objcopy cannot compress with zstd";
  }
  static std::vector<std::string> lines_of(const std::string& path, std::vector<std::string>& said) {
    auto warnings = std::make_shared<SourceWarnings>();
    std::vector<std::string> all;
    if (const auto lines = SourceLines::open(path, warnings)) {
      (void)lines->visit([&](const SourceUnit& unit) {
        for (const auto& each : unit.statements) all.push_back(std::to_string(each.first) + ":" + std::to_string(each.line));
        return true;
      });
    }
    said = warnings->texts();
    return all;
  }
  TempDir dir_;
  const std::string path_ = dir_.path() + "/plain", packed_ = dir_.path() + "/zstd";
  std::vector<std::string> said_;
};

TEST_F(ZstdSections, LinesAreThoseOfThePlainFile) {
  const auto plain = lines_of(path_, said_);
  EXPECT_GT(plain.size(), 2U);
  EXPECT_EQ(lines_of(packed_, said_), plain);
  EXPECT_EQ(said_.size(), 0U);
}

TEST_F(ZstdSections, DamageAndSizesOutOfProportionAreNamed) {
  const std::vector<std::byte> good = content_of(packed_);
  Elf64_Ehdr header;
  std::memcpy(&header, good.data(), sizeof header);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, good.data() + header.e_shoff + i * sizeof section, sizeof section);
    if ((section.sh_flags & SHF_COMPRESSED) == 0) continue;
    std::vector<std::byte> cut = good, huge = good;
    std::memset(cut.data() + section.sh_offset + sizeof(Elf64_Chdr), 0xff, 8);
    const uint64_t size = uint64_t{1} << 40;
    std::memcpy(huge.data() + section.sh_offset + offsetof(Elf64_Chdr, ch_size), &size, sizeof size);
    for (const auto& bad : {cut, huge}) {
      const std::string path = dir_.write("bad", bad);
      EXPECT_EQ(lines_of(path, said_).size(), 0U);
      ASSERT_EQ(said_.size(), 1U);
      EXPECT_NE(said_[0].find(path + ": its debug information is damaged"), std::string::npos) << said_[0];
    }
  }
}

// 300 MB of one byte take 30 KB.
TEST_F(ZstdSections, HolesDoNotCount) {
  const std::string zeros = dir_.path() + "/zeros", bad = dir_.path() + "/bad";
  ASSERT_TRUE(runs("head -c 300000000 /dev/zero >" + zeros + " && objcopy --add-section .debug_x=" + zeros + " " + path_ + " " + bad +
                   " && objcopy --compress-debug-sections=zstd " + bad));
  ASSERT_EQ(::truncate(bad.c_str(), off_t{64} << 20), 0);
  EXPECT_EQ(lines_of(bad, said_).size(), 0U);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find(bad + ": its debug information is damaged"), std::string::npos) << said_[0];
}

TEST_F(ZstdSections, HostileFilesAreReadOrRefused) {
  const std::vector<std::byte> good = content_of(packed_);
  Elf64_Ehdr header;
  std::memcpy(&header, good.data(), sizeof header);
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::byte> bad = good;
    for (unsigned i = 0; i < 1 + random() % 4; ++i)
      bad[header.e_shoff + random() % (bad.size() - header.e_shoff)] = static_cast<std::byte>(random());
    (void)lines_of(dir_.write("bad", bad), said_);
  }
}

}  // namespace
}  // namespace ptd
