// FunctionReach in files without a symbol table.
#include "recording/windows/function_reach.h"

#include <gtest/gtest.h>

#include <array>
#include <ctime>
#include <vector>

#include "tests/unit/image/pe_support.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

using image_test::TempDir;
using pe_test::PeImage;

std::shared_ptr<const PeFile> opened(const TempDir& dir, const PeImage& image) {
  const auto file = PeFile::open(*MappedFile::open(dir.write("file.dll", image.text())));
  return file.ok() ? *file : nullptr;
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
