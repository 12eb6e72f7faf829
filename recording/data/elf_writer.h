// ElfWriter: a small ELF file for debuggers, with code or without, and names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Builds a little-endian ELF file of type ET_EXEC. Not thread-safe.
class ElfWriter {
 public:
  static constexpr size_t kMostRegions = 60'000;  ///< section numbers above 0xff00 have other meanings

  /// `machine`: e_machine, as in elf(5).
  ElfWriter(uint16_t machine, bool is_64bit) : machine_(machine), word_bytes_(is_64bit ? 8 : 4) {}

  /// Adds a section of code, after those at lower addresses; at most kMostRegions. With `bytes`, it is a loadable segment too; without, the
  /// file says only where it is. The bytes must stay valid until text().
  void add_region(uint64_t address, uint64_t size_bytes, Bytes bytes = {}) { regions_.push_back({address, size_bytes, bytes}); }
  /// Adds a function. One that is in no region is left out.
  void add_function(uint64_t address, uint64_t size_bytes, std::string_view name);
  /// Returns the file.
  [[nodiscard]] std::string text() const;

 private:
  struct Region {
    uint64_t address = 0, size_bytes = 0;
    Bytes bytes;
  };
  struct Function {
    uint64_t address = 0, size_bytes = 0, name = 0;  // offset in strings_
  };
  struct Part;
  [[nodiscard]] std::string symbols() const;
  [[nodiscard]] std::string segments(uint64_t bytes_at) const;
  void put_part(std::string& to, const Part& part) const;

  uint16_t machine_;
  size_t word_bytes_;
  std::vector<Region> regions_;
  std::vector<Function> functions_;
  std::string strings_ = std::string(1, '\0');
};

}  // namespace ptd
