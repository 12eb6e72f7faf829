// FunctionReach: code written by hand as [SDM] encodes it, in a file without a symbol table. The comments are that code.
#include "recording/windows/function_reach.h"

#include <gtest/gtest.h>

#include <array>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/image/pe_support.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

using image_test::TempDir;
using pe_test::PeImage;
using namespace std::string_literals;

constexpr uint32_t kStart = 0x1000, kTable = 0x2100, kTableInFile = PeImage::kReadOnly + 0x100;

std::string word(uint32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

std::shared_ptr<const PeFile> opened(const TempDir& dir, const PeImage& image) {
  const auto file = PeFile::open(*MappedFile::open(dir.write("file.dll", image.text())));
  return file.ok() ? *file : nullptr;
}

class Code {
 public:
  explicit Code(bool is_64bit) : image_(is_64bit) {
    image_.put<uint64_t>(PeImage::kPe + 12, 0);    // no symbol table
    image_.put<uint64_t>(image_.directory(0), 0);  // no exports
    for (uint32_t i = 0; i < 0x180; ++i) image_.put<uint8_t>(PeImage::kText + i, 0xcc);
  }
  /// The size of the function at kStart that begins with `code`.
  uint64_t reach(std::string_view code) {
    for (size_t i = 0; i < code.size(); ++i) image_.put<char>(PeImage::kText + i, code[i]);
    const TempDir dir;
    const auto file = opened(dir, image_);
    return FunctionReach(*file, {{kStart, "f", true}}, {}).end_of(kStart, kStart + 0x180) - kStart;
  }
  [[nodiscard]] std::string linked(uint32_t address) const { return word(static_cast<uint32_t>(image_.base() + address)); }
  /// Three entries, for every second address from `first` on.
  void put_table(uint32_t first) {
    for (uint32_t i = 0; i < 3; ++i) image_.put<uint32_t>(kTableInFile + 4 * i, static_cast<uint32_t>(image_.base() + first + 2 * i));
  }

 private:
  PeImage image_;
};

// 0: jmp L; M: (gap); L: dec %ecx; jne M; ret; and another function. If the gap is padding, the JMP is a tail call.
std::string loop_around(std::string_view gap) {
  const auto size = static_cast<char>(gap.size());
  return "\xeb"s + size + std::string(gap) + "\xff\xc9\x75"s + static_cast<char>(-4 - size) + "\xc3\x01\xc8\xc3"s;
}

TEST(FunctionReach, OnlyFillersArePadding) {
  struct Gap {
    std::string_view code;
    bool in32, in64;  // is padding
  };
  using namespace std::string_view_literals;
  const Gap gaps[] = {
      {"\x90"sv, true, true},                            // nop
      {"\x66\x90"sv, true, true},                        // xchg %ax,%ax
      {"\x0f\x1f\x00"sv, true, true},                    // nopl (%eax)
      {"\x66\x2e\x0f\x1f\x84\0\0\0\0\0"sv, true, true},  // cs nopw 0x0(%eax,%eax,1)
      {"\xcc\xcc\xcc"sv, true, true},                    // int3
      {"\x89\xf6"sv, true, false},                       // mov %esi,%esi: in 64-bit code, clears the upper half
      {"\x8b\xff"sv, true, false},                       // mov %edi,%edi
      {"\x87\xdb"sv, true, false},                       // xchg %ebx,%ebx
      {"\x8d\x76\0"sv, true, false},                     // lea 0x0(%esi),%esi
      {"\x8d\xb6\0\0\0\0"sv, true, false},               // lea 0x0(%esi),%esi
      {"\x8d\x74\x26\0"sv, true, false},                 // lea 0x0(%esi,%eiz,1),%esi
      {"\x2e\x8d\xb4\x26\0\0\0\0"sv, true, false},       // lea %cs:0x0(%esi,%eiz,1),%esi
      {"\x8d\x64\x24\0"sv, true, false},                 // lea 0x0(%esp),%esp
      {"\x8d\x76\x04"sv, false, false},                  // lea 0x4(%esi),%esi
      {"\x8d\x74\x36\0"sv, false, false},                // lea 0x0(%esi,%esi,1),%esi
      {"\x8d\x46\0"sv, false, false},                    // lea 0x0(%esi),%eax
      {"\x89\xf0"sv, false, false},                      // mov %esi,%eax
      {"\x01\xc8"sv, false, false},                      // add %ecx,%eax
      {"\x90\x01\xc8"sv, false, false},                  // nop; add %ecx,%eax
      {"\xf3\x90"sv, false, false},                      // pause
  };
  for (const Gap& gap : gaps) {
    const std::string code = loop_around(gap.code);
    const uint64_t whole = code.size() - 3, to_jump = 2;
    SCOPED_TRACE(testing::PrintToString(gap.code));
    EXPECT_EQ(Code(false).reach(code), gap.in32 ? to_jump : whole);
    EXPECT_EQ(Code(true).reach(code), gap.in64 ? to_jump : whole);
  }
}

TEST(FunctionReach, CodeThatNothingLeadsToIsNotPadding) {
  EXPECT_EQ(Code(true).reach("\x74\x03\xc3\x01\xc8\xc3"), 3U);  // je L; ret; add %ecx,%eax; L: ret
  EXPECT_EQ(Code(true).reach("\x74\x03\xc3\x66\x90\xc3"), 6U);  // je L; ret; xchg %ax,%ax; L: ret
}

// Code that is compiled without optimization jumps from block to block; a frame is left before a tail call.
TEST(FunctionReach, AJumpToTheNextInstruction) {
  EXPECT_EQ(Code(false).reach("\x55\x89\xe5\xeb\0\x5d\xc3"s), 7U);      // push %ebp; mov %esp,%ebp; jmp L; L: pop %ebp; ret
  EXPECT_EQ(Code(false).reach("\x55\x89\xe5\x5d\xeb\0\x40\xc3"s), 6U);  // push %ebp; mov %esp,%ebp; pop %ebp; jmp g; g: inc %eax; ret
  EXPECT_EQ(Code(false).reach("\x55\x89\xe5\xc9\xeb\0\x40\xc3"s), 6U);  // push %ebp; mov %esp,%ebp; leave; jmp g
  EXPECT_EQ(Code(false).reach("\x40\xeb\0\x40\xc3"s), 3U);              // inc %eax; jmp g
}

// A switch with two cases, then code that a third entry of the table leads to. That is the first one of another function's table, or a
// pointer.
TEST(FunctionReach, ATableEndsWithItsSwitch) {
  struct Check {
    std::string code;
    bool is_taken;  // if the value is in range
  };
  const Check checks[] = {
      {"\x83\xf8\x01\x77"s, false},        // cmp $1,%eax; ja
      {"\x83\xe8\x01\x77"s, false},        // sub $1,%eax; ja
      {"\x3d\x01\0\0\0\x77"s, false},      // cmp $1,%eax; ja
      {"\x66\x3d\x01\0\x77"s, false},      // cmp $1,%ax; ja
      {"\x3c\x01\x77"s, false},            // cmp $1,%al; ja
      {"\x80\xf9\x01\x77"s, false},        // cmp $1,%cl; ja
      {"\x81\xf9\x01\0\0\0\x77"s, false},  // cmp $1,%ecx; ja
      {"\x83\x7d\xfc\x01\x77"s, false},    // cmpl $1,-4(%ebp); ja
      {"\x83\xf8\x02\x73"s, false},        // cmp $2,%eax; jae
      {"\x83\xf8\x01\x76"s, true},         // cmp $1,%eax; jbe
      {"\x83\xf8\x02\x72"s, true},         // cmp $2,%eax; jb
  };
  for (const Check& check : checks) {
    SCOPED_TRACE(testing::PrintToString(check.code));
    Code code(false);
    const std::string jump = "\xff\x24\x85"s + code.linked(kTable), out = "\xc3", cases = "\x40\xc3\x48\xc3", other = "\x41\xc3";
    std::string function = check.code + (check.is_taken ? "\x01" : "\x07");
    function += check.is_taken ? out + jump : jump + out;
    code.put_table(static_cast<uint32_t>(kStart + function.size()));
    EXPECT_EQ(code.reach(function + cases + other), function.size() + cases.size());
  }
}

// A comparison before the switch says nothing about it if both ways lead to the switch: `if (c < 2) a++; switch (b)`, all of whose values
// have a case.
TEST(FunctionReach, AnotherComparisonBeforeASwitch) {
  for (const std::string& check :
       {"\x83\xf9\x01\x77\x01\x40"s, "\x83\xf9\x02\x72\x01\x40"s}) {  // cmp $1,%ecx; ja; inc %eax. cmp $2,%ecx; jb
    Code code(false);
    const std::string jump = "\xff\x24\x95"s + code.linked(kTable), cases = "\x40\xc3\x48\xc3", third = "\x41\xc3";
    const std::string function = check + jump;
    code.put_table(static_cast<uint32_t>(kStart + function.size()));
    EXPECT_EQ(code.reach(function + cases + third), function.size() + cases.size() + third.size());
  }
}

TEST(FunctionReach, ATableEndsWhereAnotherBegins) {
  for (const bool is_other_there : {true, false}) {
    Code code(false);
    const std::string jump = "\xff\x24\x85"s + code.linked(kTable), cases = "\x40\xc3\x48\xc3";
    const std::string other = is_other_there ? "\xff\x24\x8d"s + code.linked(kTable + 8) : "\x41\xc3"s;
    code.put_table(kStart + static_cast<uint32_t>(jump.size()));
    EXPECT_EQ(code.reach(jump + cases + other), jump.size() + cases.size() + (is_other_there ? 0 : other.size()));
  }
}

// Each section is the same megabyte of the file. Nothing is read more than once.
TEST(FunctionReach, SectionsThatShareTheirBytes) {
  constexpr uint32_t kSections = 1000, kBytes = 1U << 20, kHeaders = 0x1000, kCode = 0x10000, kFirst = 0x100000;
  PeImage image;
  image.put<uint16_t>(PeImage::kPe + 6, kSections);
  image.put<uint16_t>(PeImage::kPe + 20, kHeaders - PeImage::kOptional);
  image.put<uint64_t>(PeImage::kPe + 12, 0);
  image.put<uint32_t>(PeImage::kOptional + 56, kFirst + kSections * kBytes);
  std::vector<PeSymbol> symbols;
  for (uint32_t i = 0; i < kSections; ++i) {
    symbols.push_back({kFirst + i * kBytes, "f", true});
    const uint32_t fields[] = {kBytes, symbols.back().address, kBytes, kCode, 0, 0, 0, 0x60000020};
    for (uint32_t k = 0; k < 8; ++k) image.put<uint32_t>(kHeaders + 40 * i + 8 + 4 * k, fields[k]);
  }
  image.put<std::array<uint8_t, kBytes>>(kCode, {});
  const TempDir dir;
  const auto file = opened(dir, image);
  ASSERT_NE(file, nullptr);
  const std::clock_t before = std::clock();
  FunctionReach reach(*file, symbols, {});
  uint64_t total_bytes = 0;
  for (const PeSymbol& symbol : symbols) total_bytes += reach.end_of(symbol.address, symbol.address + kBytes) - symbol.address;
  EXPECT_GE(total_bytes, kBytes);
  EXPECT_LE(total_bytes, file->file().bytes().size());
  EXPECT_LT((std::clock() - before) / CLOCKS_PER_SEC, 10);
}

}  // namespace
}  // namespace ptd
