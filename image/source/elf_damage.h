// ElfDamage: says which tables of an ELF file that names and source lines come from cannot be read.
#pragma once

#include <string>

#include "image/source/elf_file.h"

namespace ptd {

/// A sentence fragment each, "" if nothing is wrong.
struct ElfDamage {
  std::string symbols;  ///< .symtab, or .dynsym if there is none
  std::string mini;     ///< .gnu_debugdata, with its name; examined with the symbols' names only
  std::string debug;    ///< DWARF
};

/// Compares the section headers with each other and with the file. The content is not read, except, with `names`, the symbols' names.
[[nodiscard]] ElfDamage find_elf_damage(const ElfFile& elf, bool names);
/// Returns whether the file has a section of DWARF.
[[nodiscard]] bool has_debug_info(const ElfFile& elf);

/// Returns what to tell a user of damage to the file at `path`: a sentence without a full stop.
[[nodiscard]] std::string symbols_sentence(const std::string& path, const std::string& damage);
[[nodiscard]] std::string mini_sentence(const std::string& path, const std::string& damage);
[[nodiscard]] std::string debug_sentence(const std::string& path, const std::string& damage);

}  // namespace ptd
