// PE files: a hand-made image, each way in which it can be damaged, and its base relocations.
#include "image/source/pe/pe_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "tests/unit/image/pe_support.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

using image_test::TempDir;
using pe_test::PeImage;
using testing::HasSubstr;

Result<std::shared_ptr<const PeFile>> open_text(const TempDir& dir, const std::string& text) {
  auto file = MappedFile::open(dir.write("file.dll", text));
  return file.ok() ? PeFile::open(*file) : file.error();
}

// Reads all that a file has.
void read_all(const PeFile& file) {
  PeBudget budget;
  for (const uint64_t base : {file.image_base(), file.image_base() + 0x10000}) {
    const auto code = file.code_at(base, budget);
    if (!code.ok()) continue;
    for (const PeCode& piece : *code) {
      EXPECT_LE(piece.bytes.bytes.size(), piece.size_bytes);
      (void)std::ranges::count(piece.bytes.bytes, std::byte{1});
    }
  }
  for (const PeSymbol& symbol : file.symbols(1000)) EXPECT_FALSE(symbol.name.empty());
  for (const uint32_t address : file.entries()) EXPECT_NE(file.code_of(address), nullptr);
  for (const PeFunction& function : file.functions(1000)) EXPECT_LT(function.first, function.end);
}

TEST(PeFile, SectionsSymbolsAndFunctions) {
  const TempDir dir;
  for (const bool is_64bit : {true, false}) {
    const auto file = open_text(dir, PeImage(is_64bit).text());
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ((*file)->is_64bit(), is_64bit);
    EXPECT_EQ((*file)->image_base(), is_64bit ? 0x140000000 : 0x400000);
    EXPECT_EQ((*file)->image_bytes(), PeImage::kImageBytes);
    EXPECT_EQ((*file)->key(), "5eadbeef4000");
    ASSERT_EQ((*file)->sections().size(), 3U);
    EXPECT_EQ((*file)->sections()[0].name, ".text");
    EXPECT_TRUE((*file)->sections()[0].executable);
    EXPECT_FALSE((*file)->sections()[1].executable);
    std::vector<std::tuple<uint32_t, std::string, bool>> symbols;
    for (const PeSymbol& symbol : (*file)->symbols(100)) symbols.emplace_back(symbol.address, symbol.name, symbol.function);
    const std::string second = is_64bit ? "second_long_name" : "econd_long_name";
    EXPECT_THAT(symbols, testing::ElementsAre(std::tuple(0x1000, "first", true), std::tuple(0x1040, second, true),
                                              std::tuple(0x1080, "third", true)));
    std::vector<std::tuple<uint32_t, uint32_t, bool>> functions;
    for (const PeFunction& function : (*file)->functions(100)) functions.emplace_back(function.first, function.end, function.is_part);
    if (!is_64bit) functions = {{0x1000, 0x1020, false}, {0x1040, 0x1060, false}, {0x1060, 0x1070, true}};  // i386 has none
    EXPECT_THAT(functions, testing::ElementsAre(std::tuple(0x1000, 0x1020, false), std::tuple(0x1040, 0x1060, false),
                                                std::tuple(0x1060, 0x1070, true)));
    read_all(**file);
  }
}

TEST(PeFile, DamagedHeadersAreRefused) {
  struct Case {
    const char* name;
    std::function<void(PeImage&)> damage;
    ErrorCode code;
    const char* why;
  };
  const uint32_t pe = PeImage::kPe, optional = PeImage::kOptional;
  const std::vector<Case> cases = {
      {"no MZ", [](PeImage& image) { image.put<uint16_t>(0, 0); }, ErrorCode::bad_magic, "not a PE file"},
      {"headers beyond the file", [](PeImage& image) { image.put<uint32_t>(0x3c, 0xffffff00); }, ErrorCode::bad_magic, "not a PE file"},
      {"ARM64", [&](PeImage& image) { image.put<uint16_t>(pe + 4, 0xaa64); }, ErrorCode::unsupported, "neither x86-64 nor i386"},
      {"PE32 of x86-64", [&](PeImage& image) { image.put<uint16_t>(optional, 0x10b); }, ErrorCode::unsupported, "neither x86-64 nor i386"},
      {"short optional header", [&](PeImage& image) { image.put<uint16_t>(pe + 20, 100); }, ErrorCode::contradictory_record, "too short"},
      {"long optional header", [&](PeImage& image) { image.put<uint16_t>(pe + 20, 0xffff); }, ErrorCode::truncated,
       "ends within its headers"},
      {"65535 sections", [&](PeImage& image) { image.put<uint16_t>(pe + 6, 0xffff); }, ErrorCode::truncated, "section table"},
      {"overlapping sections", [](PeImage& image) { image.put<uint32_t>(image.section(1) + 12, 0x1100); }, ErrorCode::contradictory_record,
       "overlap"},
      {"sections not in order", [](PeImage& image) { image.put<uint32_t>(image.section(2) + 12, 0x1000); }, ErrorCode::contradictory_record,
       "overlap"},
      {"the same section twice", [](PeImage& image) { image.put<uint32_t>(image.section(1) + 12, 0x1000); },
       ErrorCode::contradictory_record, "overlap"},
      {"section outside", [](PeImage& image) { image.put<uint32_t>(image.section(2) + 8, 0x2000); }, ErrorCode::contradictory_record,
       "outside of its image"},
      {"huge section", [](PeImage& image) { image.put<uint32_t>(image.section(2) + 8, 0xffffffff); }, ErrorCode::contradictory_record,
       "outside of its image"},
      {"small image", [&](PeImage& image) { image.put<uint32_t>(optional + 56, 0x1000); }, ErrorCode::contradictory_record,
       "outside of its image"},
      {"section beyond the file", [](PeImage& image) { image.put<uint32_t>(image.section(0) + 20, 0x10000); }, ErrorCode::truncated,
       ".text"},
      {"code at an odd place", [](PeImage& image) { image.put<uint32_t>(image.section(0) + 20, 0x401); }, ErrorCode::contradictory_record,
       "not aligned"},
  };
  const TempDir dir;
  for (const Case& each : cases) {
    PeImage image;
    each.damage(image);
    const auto file = open_text(dir, image.text());
    ASSERT_FALSE(file.ok()) << each.name;
    EXPECT_EQ(file.error().code, each.code) << each.name;
    EXPECT_THAT(file.error().message, HasSubstr(each.why)) << each.name;
  }
}

TEST(PeFile, EveryTruncationAndEveryChangedByteOfTheHeadersAndTables) {
  const TempDir dir;
  PeImage image;
  image.put_relocations({0xa010, 0xa020, 0});
  const std::string text = image.text();
  constexpr size_t kHeaders = 0x210, kEnd = 0x900;  // of the headers, and of the last section's content
  for (size_t size = 0; size < text.size(); size += size < kHeaders ? 1 : 37) {
    const auto file = open_text(dir, text.substr(0, size));
    if (file.ok()) read_all(**file);
    EXPECT_EQ(file.ok(), size >= kEnd) << size;
  }
  for (const auto& [first, end] :
       {std::pair<size_t, size_t>(0, kHeaders), {0x600, 0x6c0}, {0x700, 0x724}, {0x780, 0x785}, {0x800, 0x80e}, {0xa00, text.size()}}) {
    for (size_t at = first; at < end; ++at) {
      for (const int change : {0x01, 0xff}) {
        std::string changed = text;
        changed[at] = static_cast<char>(changed[at] ^ change);
        const auto file = open_text(dir, changed);
        if (file.ok()) read_all(**file);
      }
    }
  }
}

TEST(PeFile, RelocationsAreAppliedToCode) {
  const TempDir dir;
  PeBudget budget;
  for (const bool is_64bit : {true, false}) {
    PeImage image(is_64bit);
    const uint64_t moved = image.base() + 0x1230000, target = image.base() + 0x2008;
    is_64bit ? image.put<uint64_t>(PeImage::kText + 0x10, target)
             : image.put<uint32_t>(PeImage::kText + 0x10, static_cast<uint32_t>(target));
    image.put_relocations({static_cast<uint16_t>(is_64bit ? 0xa010 : 0x3010), 0});
    const auto file = open_text(dir, image.text());
    ASSERT_TRUE(file.ok());
    const auto same = (*file)->code_at(image.base(), budget), other = (*file)->code_at(moved, budget);
    ASSERT_TRUE(same.ok() && other.ok());
    ASSERT_EQ(other->size(), 1U);
    const Bytes before = (*same)[0].bytes.bytes, after = (*other)[0].bytes.bytes;
    EXPECT_EQ(before.data(), (*file)->file().bytes().data() + PeImage::kText);  // no copy
    ASSERT_EQ(after.size(), 0x180U);
    uint64_t value = 0;
    std::memcpy(&value, after.data() + 0x10, is_64bit ? 8 : 4);
    EXPECT_EQ(value, target + 0x1230000);
    EXPECT_TRUE(std::ranges::equal(after.first(0x10), before.first(0x10)));
    EXPECT_TRUE(std::ranges::equal(after.subspan(0x18), before.subspan(0x18)));
  }
}

TEST(PeFile, DamagedRelocationsGiveNoCode) {
  struct Case {
    const char* name;
    std::function<void(PeImage&)> damage;
    const char* why;
  };
  const std::vector<Case> cases = {
      {"stripped", [](PeImage& image) { image.put<uint16_t>(PeImage::kPe + 22, 0x2003); }, "stripped"},
      {"table outside", [](PeImage& image) { image.put<uint32_t>(image.directory(5), 0x3f00); }, "outside of its sections"},
      {"table too long", [](PeImage& image) { image.put<uint32_t>(image.directory(5) + 4, 0x7fffffff); }, "outside of its sections"},
      {"block of 4 bytes", [](PeImage& image) { image.put<uint32_t>(PeImage::kReloc + 4, 4); }, "sizes contradict"},
      {"block of odd size", [](PeImage& image) { image.put<uint32_t>(PeImage::kReloc + 4, 11); }, "sizes contradict"},
      {"block beyond the table", [](PeImage& image) { image.put<uint32_t>(PeImage::kReloc + 4, 64); }, "sizes contradict"},
      {"a block of no size, and more", [](PeImage& image) { image.put<uint32_t>(PeImage::kReloc + 4, 0); }, "sizes contradict"},
      {"unknown type", [](PeImage& image) { image.put<uint16_t>(PeImage::kReloc + 8, 0x5010); }, "type 5"},
      {"page outside", [](PeImage& image) { image.put<uint32_t>(PeImage::kReloc, 0x7000); }, "outside of its image"},
      {"past the section's end", [](PeImage& image) { image.put<uint16_t>(PeImage::kReloc + 8, 0xa17c); }, "crosses the end"},
  };
  const TempDir dir;
  for (const Case& each : cases) {
    PeImage image;
    image.put_relocations({0xa010, 0});
    each.damage(image);
    const auto file = open_text(dir, image.text());
    ASSERT_TRUE(file.ok()) << each.name << ": " << file.error().message;
    PeBudget budget;
    const auto code = (*file)->code_at(image.base() + 0x10000, budget);
    ASSERT_FALSE(code.ok()) << each.name;
    EXPECT_THAT(code.error().message, HasSubstr(each.why)) << each.name;
    EXPECT_TRUE((*file)->code_at(image.base(), budget).ok()) << each.name;  // nothing is relocated there
  }
}

TEST(PeFile, CopiesAndTablesHaveALimit) {
  const TempDir dir;
  PeImage image;
  image.put_relocations({0xa010, 0});
  const auto file = open_text(dir, image.text());
  ASSERT_TRUE(file.ok());
  for (const PeBudget small : {PeBudget{0x17f, 1000}, PeBudget{0x180, 11}}) {
    PeBudget budget = small;
    const auto code = (*file)->code_at(image.base() + 0x10000, budget);
    ASSERT_FALSE(code.ok());
    EXPECT_EQ(code.error().code, ErrorCode::too_large);
  }
  PeBudget budget{0x180, 12};
  EXPECT_TRUE((*file)->code_at(image.base() + 0x10000, budget).ok());
  EXPECT_FALSE((*file)->code_at(image.base() + 0x20000, budget).ok());
}

// 200,000 symbols that share one name of 4,000 bytes would take 800 MB.
TEST(PeFile, NamesThatOverlapAreReadUpToALimit) {
  const TempDir dir;
  PeImage image;
  constexpr uint32_t kCount = 200'000;
  image.put<uint32_t>(PeImage::kPe + 16, kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    const uint32_t at = PeImage::kSymbols + 18 * i;
    image.put<uint64_t>(at, uint64_t{4} << 32);
    image.put<uint32_t>(at + 8, i % 0x180);
    image.put<uint16_t>(at + 12, 1);
    image.put<uint16_t>(at + 14, 0x20);
    image.put<uint16_t>(at + 16, 2);
  }
  image.put_text(PeImage::kSymbols + 18 * kCount + 4, std::string(4000, 'n'));
  const auto file = open_text(dir, image.text());
  ASSERT_TRUE(file.ok());
  uint64_t bytes = 0;
  for (const PeSymbol& symbol : (*file)->symbols(kCount)) bytes += symbol.name.size();
  EXPECT_LE(bytes, 4 * (*file)->file().bytes().size() + 8192);
}

}  // namespace
}  // namespace ptd
