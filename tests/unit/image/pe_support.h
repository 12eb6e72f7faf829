// A small PE library as bytes, laid out by hand from [PE], for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ptd::pe_test {

/// .text at RVA 0x1000 (file 0x400, 0x180 bytes), .rdata at 0x2000 (file 0x600: exports, .pdata at 0x2100, unwind information at 0x2180),
/// .reloc at 0x3000 (file 0x800), COFF symbols at file offset 0xa00. Functions: first at 0x1000 to 0x1020, second from 0x1040, third
/// (exported only) from 0x1080.
class PeImage {
 public:
  static constexpr uint32_t kPe = 0x80, kOptional = kPe + 24, kText = 0x400, kReadOnly = 0x600, kReloc = 0x800, kSymbols = 0xa00,
                            kImageBytes = 0x4000;
  static constexpr uint32_t kTimestamp = 0x5eadbeef;

  explicit PeImage(bool is_64bit = true, uint64_t base = 0)
      : is_64bit_(is_64bit),
        base_(base != 0  ? base
              : is_64bit ? 0x140000000
                         : 0x400000),
        bytes_(kSymbols) {
    put_headers();
    for (uint32_t i = 0; i < 0x180; ++i) put<uint8_t>(kText + i, 0x90);
    put_exports();
    put_functions();
    put_symbols();
  }

  template <class T>
  void put(uint64_t offset, T value) {
    if (offset + sizeof value > bytes_.size()) bytes_.resize(offset + sizeof value);
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }
  void put_text(uint64_t offset, std::string_view text) {
    for (size_t i = 0; i <= text.size(); ++i) put<char>(offset + i, i < text.size() ? text[i] : '\0');
  }
  /// Offset of data directory `index`.
  [[nodiscard]] uint32_t directory(uint32_t index) const { return kOptional + (is_64bit_ ? 112 : 96) + 8 * index; }
  /// Offset of entry `index` of the section table.
  [[nodiscard]] uint32_t section(uint32_t index) const { return kOptional + (is_64bit_ ? 240 : 224) + 40 * index; }
  /// Makes the table of base relocations from 16-bit entries of page 0x1000.
  void put_relocations(const std::vector<uint16_t>& entries) {
    put<uint32_t>(kReloc, 0x1000);
    put<uint32_t>(kReloc + 4, static_cast<uint32_t>(8 + 2 * entries.size()));
    for (size_t i = 0; i < entries.size(); ++i) put<uint16_t>(kReloc + 8 + 2 * i, entries[i]);
    put<uint32_t>(directory(5), 0x3000);
    put<uint32_t>(directory(5) + 4, static_cast<uint32_t>(8 + 2 * entries.size()));
  }
  [[nodiscard]] uint64_t base() const { return base_; }
  [[nodiscard]] std::string text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  void put_headers() {
    put<uint16_t>(0, 0x5a4d);
    put<uint32_t>(0x3c, kPe);
    put<uint32_t>(kPe, 0x4550);
    put<uint16_t>(kPe + 4, is_64bit_ ? 0x8664 : 0x14c);
    put<uint16_t>(kPe + 6, 3);
    put<uint32_t>(kPe + 8, kTimestamp);
    put<uint32_t>(kPe + 12, kSymbols);
    put<uint32_t>(kPe + 16, 5);
    put<uint16_t>(kPe + 20, is_64bit_ ? 240 : 224);
    put<uint16_t>(kPe + 22, 0x2002);
    put<uint16_t>(kOptional, is_64bit_ ? 0x20b : 0x10b);
    is_64bit_ ? put<uint64_t>(kOptional + 24, base_) : put<uint32_t>(kOptional + 28, static_cast<uint32_t>(base_));
    put<uint32_t>(kOptional + 32, 0x1000);
    put<uint32_t>(kOptional + 36, 0x200);
    put<uint32_t>(kOptional + 56, kImageBytes);
    put<uint32_t>(kOptional + 60, 0x400);
    put<uint32_t>(directory(0) - 4, 16);
    put_section(0, ".text", 0x180, 0x1000, kText, 0x60000020);
    put_section(1, ".rdata", 0x200, 0x2000, kReadOnly, 0x40000040);
    put_section(2, ".reloc", 0x100, 0x3000, kReloc, 0x42000040);
  }
  void put_section(uint32_t index, std::string_view name, uint32_t size, uint32_t address, uint32_t offset, uint32_t flags) {
    const uint32_t at = section(index);
    put_text(at, name);
    put<uint32_t>(at + 8, size);
    put<uint32_t>(at + 12, address);
    put<uint32_t>(at + 16, 0x200);
    put<uint32_t>(at + 20, offset);
    put<uint32_t>(at + 36, flags);
  }
  // Names: first, forwarded (a string within the directory), third.
  void put_exports() {
    put<uint32_t>(directory(0), 0x2000);
    put<uint32_t>(directory(0) + 4, 0xc0);
    put<uint32_t>(kReadOnly + 20, 3);
    put<uint32_t>(kReadOnly + 24, 3);
    put<uint32_t>(kReadOnly + 28, 0x2028);
    put<uint32_t>(kReadOnly + 32, 0x2034);
    put<uint32_t>(kReadOnly + 36, 0x2040);
    const uint32_t functions[] = {0x1000, 0x2070, 0x1080}, names[] = {0x2050, 0x2058, 0x2064};
    for (uint16_t i = 0; i < 3; ++i) {
      put<uint32_t>(kReadOnly + 0x28 + 4 * i, functions[i]);
      put<uint32_t>(kReadOnly + 0x34 + 4 * i, names[i]);
      put<uint16_t>(kReadOnly + 0x40 + 2 * i, i);
    }
    put_text(kReadOnly + 0x50, "first");
    put_text(kReadOnly + 0x58, "forwarded");
    put_text(kReadOnly + 0x64, "third");
    put_text(kReadOnly + 0x70, "OTHER.f");
  }
  // The third entry continues the second.
  void put_functions() {
    put<uint32_t>(directory(3), 0x2100);
    put<uint32_t>(directory(3) + 4, 36);
    const uint32_t entries[] = {0x1000, 0x1020, 0x2180, 0x1040, 0x1060, 0x2180, 0x1060, 0x1070, 0x2184};
    for (uint32_t i = 0; i < 9; ++i) put<uint32_t>(kReadOnly + 0x100 + 4 * i, entries[i]);
    put<uint8_t>(kReadOnly + 0x180, 1);
    put<uint8_t>(kReadOnly + 0x184, 1 | 4 << 3);
  }
  // .text with an auxiliary entry, first, a long name, data of .rdata.
  void put_symbols() {
    put_symbol(0, ".text", 0, 1, 0, 3, 1);
    put_symbol(1, "", 0, 0, 0, 0, 0);
    put_symbol(2, is_64bit_ ? "first" : "_first", 0, 1, 0x20, 2, 0);
    put_symbol(3, "", 0x40, 1, 0x20, 3, 0);
    put<uint32_t>(kSymbols + 3 * 18, 0);
    put<uint32_t>(kSymbols + 3 * 18 + 4, 4);
    put_symbol(4, "data", 0, 2, 0, 2, 0);
    put<uint32_t>(kSymbols + 5 * 18, 4 + 17);
    put_text(kSymbols + 5 * 18 + 4, is_64bit_ ? "second_long_name" : "_econd_long_name");
  }
  void put_symbol(uint32_t index, std::string_view name, uint32_t value, int16_t section, uint16_t type, uint8_t storage, uint8_t more) {
    const uint32_t at = kSymbols + 18 * index;
    for (uint32_t i = 0; i < 18; ++i) put<uint8_t>(at + i, 0);
    for (uint32_t i = 0; i < name.size(); ++i) put<char>(at + i, name[i]);
    put<uint32_t>(at + 8, value);
    put<int16_t>(at + 12, section);
    put<uint16_t>(at + 14, type);
    put<uint8_t>(at + 16, storage);
    put<uint8_t>(at + 17, more);
  }

  bool is_64bit_;
  uint64_t base_;
  std::vector<std::byte> bytes_;
};

}  // namespace ptd::pe_test
