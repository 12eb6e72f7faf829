// Caches the parsed symbols of files in the stash.
#pragma once

#include <string>
#include <vector>

#include "image/source/elf_file.h"
#include "image/stash/stash.h"

namespace ptd::stash {

/// Same as elf.read_symbols(), for a content from `stash`. Reads DIR/parsed/symbols-5/xx/HASH if it is complete and of this format;
/// otherwise parses the raw form and, if this user may write, caches the result.
///
///     8 bytes "ptdsym-5", u64 count, u64 bytes of names, 64 hex digits: SHA-256 of all that follows
///     count times: u64 address, u64 size, u32 offset of the name, u32 its length and, in the highest bits, 31: function, 30: global,
///         29: weak
///     names, consecutively in the order of the rows
[[nodiscard]] std::vector<ElfSymbol> symbols_of(const Stash& stash, const std::string& hash, const ElfFile& elf);

}  // namespace ptd::stash
