// Extents: addresses of a kernel's memory that are removed from copies of it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "image/source/code_bytes.h"

namespace ptd {

using Extents = std::vector<std::pair<uint64_t, uint64_t>>;  ///< addresses and ends

/// Leaves each address to one range, in order, none of them empty. Returns the pages for which two have different bytes, in order. A copy
/// of a kernel has few overlaps: after kMostCompared bytes of them, others count as different.
[[nodiscard]] Extents remove_overlaps(std::vector<MemoryRange>& ranges);

/// Removes extents, in any order, from ranges.
[[nodiscard]] std::vector<MemoryRange> without(const std::vector<MemoryRange>& ranges, Extents extents);

}  // namespace ptd
