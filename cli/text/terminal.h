// The terminal that standard output may be.
#pragma once

#include <cstddef>

namespace ptd::cli {

/// Columns of the terminal that standard output is; 0 if it is none.
[[nodiscard]] size_t terminal_columns();

}  // namespace ptd::cli
