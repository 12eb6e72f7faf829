// SymbolPlaces: names of functions, several of one name, and what is not there.
#include "capture/live/events/symbol_places.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

extern "C" __attribute__((noinline, used)) int symbol_places_test_function(int value) { return value + 1; }

namespace ptd::live {
namespace {

constexpr const char* kKallsyms =
    "ffffffff81000000 T _stext\n"
    "ffffffff81000100 t twin\n"
    "ffffffff81000140 D data\n"
    "ffffffff81000180 T alias\n"
    "ffffffff81000180 t other\n"
    "ffffffff81000200 t twin\n"
    "ffffffff81000240 t last [module]\n";

TEST(SymbolPlaces, OfTheKernel) {
  const SymbolPlaces places = SymbolPlaces::of_kernel(kKallsyms);
  EXPECT_EQ(places.find("_stext")->place, 0xffffffff81000000);
  EXPECT_EQ(places.find("_stext")->size_bytes, 0x100U);
  EXPECT_EQ(places.find("alias")->size_bytes, 0x80U);
  EXPECT_EQ(places.find("other")->place, places.find("alias")->place);
  EXPECT_EQ(places.find("twin#2")->place, 0xffffffff81000200);
  EXPECT_EQ(places.find("data").error().code, ErrorCode::no_such_function);
  EXPECT_EQ(places.find("twin").error().message, "'twin' occurs 2 times: write twin#1 ...");
  EXPECT_EQ(places.find("twin#3").error().code, ErrorCode::bad_option);
}

// The C library has memcpy in two versions, and cfree only in an old one.
TEST(SymbolPlaces, VersionsOfAName) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&printf), &info), 0);
  const auto file = ElfFile::open(info.dli_fname);
  ASSERT_TRUE(file.ok());
  const std::vector<ElfSymbol> symbols = (*file)->read_symbols();
  const auto has = [&](const char* name) {
    return std::any_of(symbols.begin(), symbols.end(), [&](const ElfSymbol& symbol) { return symbol.name == name; });
  };
  if (!has("cfree@GLIBC_2.2.5") || !has("memcpy@GLIBC_2.2.5")) GTEST_SKIP() << info.dli_fname << " has other versions";
  const SymbolPlaces places = SymbolPlaces::of_file(**file);
  EXPECT_TRUE(places.find("cfree").ok());
  const Result<SymbolPlace> current = places.find("memcpy");
  ASSERT_TRUE(current.ok()) << current.error().message;
  EXPECT_NE(current->place, places.find("memcpy@GLIBC_2.2.5")->place);
}

TEST(SymbolPlaces, OfAFile) {
  const auto file = ElfFile::open("/proc/self/exe");
  ASSERT_TRUE(file.ok());
  const Result<SymbolPlace> found = SymbolPlaces::of_file(**file).find("symbol_places_test_function");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_NE(found->size_bytes, 0U);
  uint64_t address = 0;
  ASSERT_TRUE((*file)->address_of_offset(found->place, address));
  EXPECT_EQ(code_offset(**file, address), found->place);
  EXPECT_EQ(code_offset(**file, ~uint64_t{0}), std::nullopt);
}

}  // namespace
}  // namespace ptd::live
