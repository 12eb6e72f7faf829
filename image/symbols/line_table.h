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

/// The most rows that are read of the line table of one unit. A row takes up to 500 bytes while the unit is read, so the bound is 1 GiB.
/// Compilers write about three rows for a line of code, and the largest files of programs have a tenth of that.
inline constexpr uint64_t kMostLineRows = 1U << 21;

/// What the unit that refers to a line table says.
struct LineTableUnit {
  uint64_t offset_bytes = 0;  ///< of the table
  uint64_t folder_bytes = 0;  ///< length of the unit's folder
  uint8_t address_bytes = 0;  ///< size of its addresses
};

enum class LineTableUse : uint8_t { readable, invalid, too_long };

/// Consumes from `limits` the maximum that libdw needs for a line table: it joins every file name with its folder and keeps all rows. Only
/// `readable` tables may be read; `too_long`: it has more than kMostLineRows, for which nothing is consumed; `invalid`: a limit is
/// exceeded, or header or program are invalid. [DWARF5] "The Line Number Program Header", "The Line Number Program"
LineTableUse spend_line_table(const LineSections& sections, const LineTableUnit& unit, DebugLimits& limits);

}  // namespace ptd
