// Measures line tables before libdw reads them. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "image/symbols/dwarf/debug_limits.h"

namespace ptd {

/// The sections that contain a line table; empty if the file has none.
struct LineSections {
  std::span<const std::byte> lines, line_strings, strings;  // .debug_line, .debug_line_str, .debug_str
  bool big_endian = false;
};

/// Consumes from `limits` the maximum that libdw needs for the line table at `offset_bytes`: it joins every file name with its folder and
/// stores at most one row per byte of the program. `folder_bytes`: length of the unit's folder. Returns false if a limit is exceeded or if
/// the table's header is invalid; then the table must not be read. [DWARF5] "The Line Number Program Header"
bool spend_line_table(const LineSections& sections, uint64_t offset_bytes, uint64_t folder_bytes, DebugLimits& limits);

}  // namespace ptd
