// Caches the parsed symbols of files in the stash.
#pragma once

#include <string>
#include <vector>

#include "image/source/elf_file.h"
#include "image/stash/stash.h"

namespace ptd::stash {

/// As elf.read_symbols(), of a content that `stash` gave: from DIR/parsed/symbols-1/xx/HASH if that is whole and of this format; else they
/// are read from the raw form and, where this user may, kept for the next time.
///
///     8 bytes "ptdsym-1", u64 count, u64 bytes of names, 64 hex digits: SHA-256 of all that follows
///     count times: u64 address, u64 size, u32 offset of the name, u32 its length and, in the highest bits, 31: function, 30: global
///     names, one behind the other in the order of the rows
[[nodiscard]] std::vector<ElfSymbol> symbols_of(const Stash& stash, const std::string& hash, const ElfFile& elf);

}  // namespace ptd::stash
