// Kernel symbol and module lists in the format of /proc/kallsyms and /proc/modules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// One line of kallsyms, which has no sizes.
struct KernelSymbol {
  uint64_t address = 0;
  char type = '?';  ///< as nm prints it; 't' and 'T' are text
  std::string name;
  std::string module;  ///< without brackets, "" for the kernel proper

  [[nodiscard]] bool is_text() const { return type == 't' || type == 'T' || type == 'w' || type == 'W'; }
};

/// One line of /proc/modules.
struct KernelModule {
  std::string name;
  uint64_t size_bytes = 0;
  uint64_t address = 0;
  bool is_live = true;  ///< false: being loaded or removed
};

/// The end of a list whose last line has no newline: the kernel ends each line with one.
struct CutLine {
  bool is_cut = false;
  std::string module;  ///< that of the line before, "" for the kernel proper
};

/// Parses text lines to symbols sorted by address (stable). Malformed lines are skipped; at most `limit` symbols are kept. A last line
/// without a newline gives a symbol that is not text, and sets `cut`.
[[nodiscard]] std::vector<KernelSymbol> parse_kallsyms(const std::string& text, size_t limit = 4U << 20, CutLine* cut = nullptr);
[[nodiscard]] std::vector<KernelModule> parse_modules(const std::string& text, size_t limit = 1U << 16);

/// Same for files; empty if the file cannot be read.
[[nodiscard]] std::vector<KernelSymbol> read_kallsyms(const std::string& path, CutLine* cut = nullptr);
[[nodiscard]] std::vector<KernelModule> read_modules(const std::string& path);

/// Returns how sentences name an address.
[[nodiscard]] std::string address_text(uint64_t address);
/// Returns the address of the symbol `name`, 0 if there is none. `symbols` need not be sorted.
[[nodiscard]] uint64_t address_of(const std::vector<KernelSymbol>& symbols, const std::string& name);

}  // namespace ptd
