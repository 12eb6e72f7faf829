// Lists of kernel names that end too early.
#pragma once

#include <string>
#include <vector>

#include "image/source/elf_file.h"
#include "image/source/kernel/kallsyms.h"

namespace ptd {

/// Returns why a list of names lacks functions, a sentence fragment; "" if nothing says so. `symbols` and `modules` are sorted by address.
/// Its last names, whose functions have no known end, become symbols that are not text: names of the kernel proper, or all of the module in
/// which the list ends. `ranges`: a copy of the kernel's memory; empty: unknown.
[[nodiscard]] std::string remove_cut_names(std::vector<KernelSymbol>& symbols, const CutLine& cut, const std::vector<KernelModule>& modules,
                                           const std::vector<MemoryRange>& ranges);
/// Adds a symbol that is not text at the end of each module, unless it is in another: the name of a module's last function ends there.
void add_module_ends(std::vector<KernelSymbol>& symbols, const std::vector<KernelModule>& modules);

}  // namespace ptd
