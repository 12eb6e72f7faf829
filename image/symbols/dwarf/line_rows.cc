// Rows of line tables: see line_rows.h.
#include "image/symbols/dwarf/line_rows.h"

#include <algorithm>
#include <cstddef>

namespace ptd {

void mark_repeats(std::vector<LineRow>& rows) {
  bool has_discriminator = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool goes_on = i != 0 && !rows[i - 1].end && rows[i].line == rows[i - 1].line && rows[i].file == rows[i - 1].file;
    has_discriminator = (goes_on && has_discriminator) || rows[i].discriminator != 0;
    rows[i].repeats = goes_on && has_discriminator;
  }
}

void mark_shown(std::vector<LineRow>& rows) {
  uint32_t shown = 0;
  for (uint32_t i = 0; i < rows.size(); ++i) {
    const LineRow& row = rows[i];
    const LineRow& before = rows[shown];
    const bool is_hidden = row.repeats || row.line == 0 || (!row.statement && before.statement && before.address == row.address);
    if (row.end || before.end || !is_hidden) shown = i;
    rows[i].shown = shown;
  }
}

bool is_alone(const std::vector<LineRow>& rows, const LineRow& row) {
  const auto first =
      std::lower_bound(rows.begin(), rows.end(), row.address, [](const LineRow& each, uint64_t value) { return each.address < value; });
  int here = 0;
  for (auto at = first; at != rows.end() && at->address == row.address && here < 2; ++at)
    here += !at->end && !at->repeats && at->line != 0 ? 1 : 0;
  return here < 2;
}

}  // namespace ptd
