// The parsed form of a content: its symbols, as they come out of the raw form, for the next time.
#pragma once

#include <vector>

#include "image/source/elf_file.h"

namespace ptd::stash {

/// As elf.read_symbols(). Of a content of a stash they come from DIR/parsed/symbols-1/xx/HASH if that is whole and of this format; else
/// they are read from the raw form and, where this user may, kept for the next time. Of any other file: read from the file.
///
///     8 bytes "ptdsym-1", u64 count, u64 bytes of names, 32 bytes SHA-256 of all that follows
///     count times: u64 address, u64 size, u32 offset of the name, u32 its length and, in the highest bits, 31: function, 30: global
///     names
[[nodiscard]] std::vector<ElfSymbol> symbols_of(const ElfFile& elf);

}  // namespace ptd::stash
