// Writes and checks a file with the sizes and hashes of a unit's tables, so that a merge uses no table that is damaged or of another unit.
#pragma once

#include <cstdint>
#include <string>

#include "ptdecode/error.h"

namespace ptd::cli {

/// Reads the tables of unit `unit` of the plan `plan` (plan_id()) in `folder`, and writes their sizes and hashes to unit-NUMBER.sums.json
/// there. Errors: those of MappedFile and WholeFile.
[[nodiscard]] Status write_table_sums(const std::string& folder, uint64_t plan, uint32_t unit);

/// Returns an error if the tables of a unit differ from the sums that write_table_sums() wrote. Errors: bad_format, wrong_recording for
/// another plan or unit, bad_checksum for a table that differs, and those of MappedFile.
[[nodiscard]] Status check_table_sums(const std::string& folder, uint64_t plan, uint32_t unit);

}  // namespace ptd::cli
