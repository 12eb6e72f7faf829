// Rows of the line table of a unit, as GDB uses them. Private to the module.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ptd {

struct LineRow {
  uint64_t address = 0;
  std::string_view file;
  uint32_t line = 0, discriminator = 0;
  uint32_t shown = 0;  // index of the row that GDB uses for the addresses of this one
  // end: of a sequence; the following addresses have no line. repeats: see mark_repeats().
  bool statement = false, end = false, repeats = false;
};

/// Marks the rows that GDB omits, because an earlier one in a run of rows of one line has a discriminator. The rows are in the table's
/// order.
void mark_repeats(std::vector<LineRow>& rows);

/// Sets the rows that GDB uses. Of rows at one address it takes the last statement, or the last row if none is a statement; it ignores rows
/// without a line. The rows are sorted by address.
void mark_shown(std::vector<LineRow>& rows);

/// Returns whether GDB has no other row at the address of this one.
[[nodiscard]] bool is_alone(const std::vector<LineRow>& rows, const LineRow& row);

}  // namespace ptd
