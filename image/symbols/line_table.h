// Measures line tables before libdw reads them. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "image/symbols/debug_limits.h"

namespace ptd {

/// The sections that a line table is made of; empty if the file has none.
struct LineSections {
  std::span<const std::byte> lines, line_strings, strings;  // .debug_line, .debug_line_str, .debug_str
  bool big_endian = false;
};

/// Takes from `limits` what libdw needs at most for the line table at `offset_bytes`: it joins every file name with its folder and keeps a
/// row for each byte of the program or fewer. `folder_bytes`: length of the unit's folder. Returns false if a limit is exceeded or if the
/// table's header is invalid; the table must not be read then. [DWARF5] "The Line Number Program Header"
bool spend_line_table(const LineSections& sections, uint64_t offset_bytes, uint64_t folder_bytes, DebugLimits& limits);

}  // namespace ptd
