// SymbolPlaces: where the functions of a file or of the kernel are, by name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "image/source/elf_file.h"

namespace ptd::live {

struct SymbolPlace {
  uint64_t place = 0;  ///< the offset in a file, or the kernel's address
  uint64_t size_bytes = 0;
};

class SymbolPlaces {
 public:
  /// The symbols in executable segments. Errors: those of ElfFile::open().
  static Result<SymbolPlaces> of_file(const std::string& path);
  static SymbolPlaces of_file(const ElfFile& file);
  /// `kallsyms`: text of /proc/kallsyms.
  static SymbolPlaces of_kernel(const std::string& kallsyms);
  /// Finds NAME, or NAME#N where a name occurs several times. Errors: no_such_function, and bad_option for N,
  /// without the option's name.
  [[nodiscard]] Result<SymbolPlace> find(const std::string& text) const;

 private:
  void add(const std::string& name, const SymbolPlace& place);
  std::map<std::string, std::vector<SymbolPlace>> places_;
};

/// Returns the file offset of an address in an executable segment.
[[nodiscard]] std::optional<uint64_t> code_offset(const ElfFile& file, uint64_t address);
/// Returns `text` without blanks at its ends.
[[nodiscard]] std::string trimmed(const std::string& text);

}  // namespace ptd::live
