// Page dumps: 4096-byte pages in one file, their addresses in another.
#pragma once

#include <string>
#include <vector>

#include "image/base/result.h"
#include "image/source/mapped_file.h"

namespace ptd {

/// Reads a dump of memory pages: page i of `dump_path` stands at the i-th little-endian u64 of `addresses_path`. Pages that follow each
/// other in both files become one range. Ranges are sorted by address; of two pages at one address the first wins.
/// Errors: file_open; file_format if the counts differ (the message names both) or an address is not page aligned.
Result<std::vector<MemoryRange>> read_page_dump(const std::string& dump_path, const std::string& addresses_path);

}  // namespace ptd
