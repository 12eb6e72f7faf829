// pick_steps: counts the cost of Symbolizer::pick().
#pragma once

#include <cstdint>

namespace ptd {

/// Returns the number of ranges, sections and addresses that pick() examined on this thread, for tests of its cost.
[[nodiscard]] uint64_t& pick_steps();

}  // namespace ptd
