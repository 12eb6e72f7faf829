// Names of one address: which is listed, and all of them. Bounds of functions without a symbol.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>

#include "image/base/mapped_file.h"
#include "image/symbols/dwarf/frame_extents.h"
#include "image/symbols/dwarf/landing_pads.h"
#include "image/symbols/file_symbols.h"
#include "image/symbols/name_rank.h"
#include "ptdecode/symbols.h"
#include "source_support.h"

namespace ptd {
namespace {

using image_test::SmallElf;
using image_test::TempDir;

NameTraits symbol(const char* name, bool global = true, bool weak = false) { return {name, true, true, global, weak}; }

TEST(NameRank, ThePublicDefaultNameComesFirst) {
  // Names of one address each, as Debian 12's libc and kernels have them; the first is the one that programs call.
  const std::vector<std::vector<NameTraits>> addresses = {
      {symbol("free"), symbol("__libc_free"), symbol("cfree@GLIBC_2.2.5"), symbol("__GI___libc_free", false)},
      {symbol("memcmp"), symbol("bcmp", true, true), symbol("__memcmp_alias", false)},
      {symbol("pthread_getspecific@@GLIBC_2.34"), symbol("pthread_getspecific@GLIBC_2.2.5"), symbol("__pthread_getspecific@GLIBC_2.2.5")},
      {symbol("write", true, true), symbol("__libc_write"), symbol("__write", true, true)},
      {symbol("fopen@@GLIBC_2.2.5"), symbol("fopen64"), symbol("_IO_fopen@@GLIBC_2.2.5")},
      {symbol("htons"), symbol("ntohs", true, true)},
      {symbol("memcpy@GLIBC_2.2.5"), symbol("__memcpy_local", false)},
      {symbol("__x64_sys_getpid"), symbol("__ia32_sys_getpid"), symbol("__do_sys_getpid", false)},
      {symbol("virtio_init", false), symbol("init_module")},
      {symbol("f"), {"label", false, true, true, false}},
      {symbol("choose", false), symbol("f@resolver"), {"label", false, true, true, false}},
  };
  for (const auto& names : addresses) {
    for (size_t i = 0; i + 1 < names.size(); ++i)
      EXPECT_LT(name_rank(names[i]), name_rank(names[i + 1])) << names[i].name << " " << names[i + 1].name;
  }
}

TEST(NameRank, Versions) {
  EXPECT_EQ(unversioned_length("f@@V1"), 1U);
  EXPECT_EQ(unversioned_length("f@V1"), 1U);
  EXPECT_EQ(unversioned_length("f@V1@resolver"), 13U);
  EXPECT_EQ(unversioned_length("free@plt"), 8U);
  EXPECT_EQ(unversioned_length("@fastcall@8"), 9U);
  EXPECT_EQ(unversioned_length(""), 0U);
  EXPECT_TRUE(is_old_version("f@V1"));
  for (const char* name : {"f@@V1", "f", "f@plt", "@f", ""}) EXPECT_FALSE(is_old_version(name)) << name;
}

TEST(NamesAt, TheNamesOfOneAddressAndTimeAreBounded) {
  Symbolizer symbols{Timeline()};
  constexpr Ip kAt{0xffffffff81000000};
  const auto add = [&](std::string name, Interval live) { symbols.add_range({kKernelSpace, kAt, 64, live, std::move(name), "[kernel]"}); };
  const Interval early{TimeNs{10}, TimeNs{19}}, late{TimeNs{20}, TimeNs{29}};
  for (const char* name : {"a", "b", "a"}) add(name, early);
  for (int i = 0; i < 3000; ++i) add("late" + std::to_string(i), late);
  EXPECT_EQ(symbols.names_at(kKernelSpace, kAt + 8, TimeNs{12}), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(symbols.names_at(kKernelSpace, kAt + 64, TimeNs{12}).empty());
  EXPECT_TRUE(symbols.names_at(kKernelSpace, kAt, TimeNs{40}).empty());
  const std::vector<std::string> many = symbols.names_at(kKernelSpace, kAt, TimeNs{22});
  EXPECT_LE(many.size(), Symbolizer::kMostNames);
  EXPECT_EQ(many.front(), symbols.find(kKernelSpace, kAt, TimeNs{22})->name);
  ASSERT_EQ(symbols.warnings().size(), 1U);
  EXPECT_EQ(symbols.warnings()[0],
            "[kernel]: more than 1024 symbols at address 0xffffffff81000000; filters by name know only the first of them");
}

// Rust's names of crates of one name, which differ in a hash that the readable name lacks.
TEST(Places, FunctionsOfCratesOfOneNameAreNamedByAddress) {
  const TempDir dir;
  SmallElf elf;
  elf.code.resize(0x100);
  elf.symbols = {{"_RNvC1a1f", 0x400210, 8}, {"_RNvCs1_1a1f", 0x400220, 8}, {"_RNvC1b1f", 0x400230, 8}};
  FileSymbols symbols("p", {dir.write("p", elf.bytes())}, nullptr, nullptr, nullptr);
  EXPECT_EQ(symbols.names_at(0x210), std::vector<std::string>{"0x400210:a::f"});
  EXPECT_EQ(symbols.names_at(0x220), std::vector<std::string>{"0x400220:a::f"});
  EXPECT_EQ(symbols.names_at(0x230), std::vector<std::string>{"b::f"});
}

// Ends only if no step is done for each pair of functions.
TEST(Places, ManyFunctionsOfOneReadableName) {
  constexpr uint64_t kCount = 200'000;
  const TempDir dir;
  SmallElf elf;
  elf.code.resize(0x200 + kCount);
  elf.symbols = {{"_RNvC5crate1f", 0x400200, 1}};
  for (uint64_t i = 1; i < kCount; ++i) elf.symbols.push_back({"_RNvCs" + std::to_string(i) + "_5crate1f", 0x400200 + i, 1});
  FileSymbols symbols("p", {dir.write("p", elf.bytes())}, nullptr, nullptr, nullptr);
  EXPECT_EQ(symbols.names_at(0x200), std::vector<std::string>{"0x400200:crate::f"});
  EXPECT_EQ(symbols.names_at(0x210), std::vector<std::string>{"0x400210:crate::f"});
}

TEST(FrameExtents, DamagedInformationGivesOnlyExtentsOfCode) {
  const TempDir dir;
  const auto whole = MappedFile::open("/bin/true");
  if (!whole.ok()) GTEST_SKIP() << "no /bin/true";
  const auto intact = ElfFile::open(*whole);
  ASSERT_TRUE(intact.ok());
  const Bytes bytes = (*whole)->bytes();
  const auto entry = FrameExtents(**intact).find((*intact)->entry());
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->start, (*intact)->entry());
  EXPECT_TRUE(entry->is_function);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t frames = text.find(std::string_view("\1zR\0", 4));  // of a CIE
  ASSERT_NE(frames, std::string_view::npos);
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::byte> bad(bytes.begin(), bytes.end());
    const size_t first = frames + random() % std::min<size_t>(4096, bad.size() - frames), size = 1 + random() % 64;
    for (size_t i = first; i < std::min(first + size, bad.size()); ++i) bad[i] = static_cast<std::byte>(round % 2 == 0 ? random() : 0xff);
    const auto elf = ElfFile::open(dir.write("bad", bad));
    if (!elf.ok()) continue;
    const FrameExtents extents(**elf);
    for (int i = 0; i < 100; ++i) {
      const uint64_t address = random() % bad.size();
      const auto found = extents.find(address);
      if (found) {
        EXPECT_LT(address - found->start, found->size_bytes);
      }
    }
  }
}

// A library of C++ has thousands of call sites with landing pads.
TEST(LandingPads, DamagedTablesGiveOnlyCallSites) {
  const TempDir dir;
  const auto whole = MappedFile::open("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
  if (!whole.ok()) GTEST_SKIP() << "no libstdc++.so.6";
  const auto intact = ElfFile::open(*whole);
  ASSERT_TRUE(intact.ok());
  ASSERT_TRUE(has_landing_pads(**intact));
  const FrameExtents frames(**intact);
  const LandingPads pads(**intact, frames.tables());
  ASSERT_GT(pads.all().size(), 1000U);
  for (const CallSite& site : pads.all()) {
    ASSERT_EQ(pads.find(site.start), pads.find(site.start + site.size_bytes - 1));
    ASSERT_EQ(pads.find(site.start)->landing, site.landing);
    ASSERT_TRUE(pads.is_landing(site.landing));
    // gcc places both in one function, or part of one.
    const auto from = frames.find(site.start), to = frames.find(site.landing);
    ASSERT_TRUE(from && to);
    ASSERT_EQ(from->start, to->start);
  }
  const Bytes bytes = (*whole)->bytes();
  uint64_t first = ~uint64_t{0}, last = 0;
  for (const CallSiteTable& table : frames.tables()) {
    first = std::min(first, table.address);
    last = std::max(last, table.address);
  }
  ASSERT_LT(last, bytes.size());  // these addresses are file offsets
  std::mt19937 random(12);
  std::vector<std::byte> bad(bytes.begin(), bytes.end());
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 2000; ++i) bad[first + random() % (last - first)] = static_cast<std::byte>(round % 2 == 0 ? random() : 0xff);
    const auto elf = ElfFile::open(dir.write("bad", bad));
    ASSERT_TRUE(elf.ok());
    std::vector<CallSiteTable> tables = frames.tables();
    tables.push_back({0x1000, ~uint64_t{0} - 3});
    tables.push_back({0x1000, last + (1U << 20)});
    const LandingPads found(**elf, tables);
    for (int i = 0; i < 1000; ++i) {
      const uint64_t address = random() % bad.size();
      const CallSite* const site = found.find(address);
      if (site != nullptr) {
        EXPECT_LT(address - site->start, site->size_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace ptd
