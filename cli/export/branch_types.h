// perf's numbers and names of kinds of branches.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ptd::cli {

struct BranchType {
  int64_t number = 0;  ///< PERF_IP_FLAG_* bits, and one of ours where two kinds have the same bits
  std::string name;    ///< as perf's export script names it
};
/// Returns the type of a value of the column `flags` of the table `branches`.
[[nodiscard]] BranchType branch_type(std::string_view flags);

}  // namespace ptd::cli
