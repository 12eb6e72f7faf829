// Contradictions between a list of the kernel's modules, its names and a copy of its memory.
#pragma once

#include <string>
#include <vector>

#include "image/source/elf_file.h"
#include "image/source/kernel/kallsyms.h"

namespace ptd {

/// Modules at addresses where they cannot be.
struct WrongModules {
  size_t count = 0;
  uint64_t first = 0;  ///< address of the first
  std::string what;    ///< what is wrong with the first, and how many others there are; "" if there is none
};

/// Compares modules with names. Both are sorted by address. A module is wrong if it begins in the kernel's text or in the functions of
/// another, or if more than a few of its functions are outside it. Only functions count: since Linux 6.4 a module's data are elsewhere, and
/// its size in /proc/modules is that of both together ([Linux] kernel/module/procfs.c, m_show()).
[[nodiscard]] WrongModules compare_modules(const std::vector<KernelModule>& modules, const std::vector<KernelSymbol>& symbols);
/// Compares modules with a copy of memory. A module is wrong if the copy lacks its begin, and a range of the copy begins within it.
[[nodiscard]] WrongModules compare_modules(const std::vector<KernelModule>& modules, const std::vector<MemoryRange>& ranges);

}  // namespace ptd
