// Page dumps: 4096-byte pages in one file, their addresses in another.
#pragma once

#include <string>
#include <vector>

#include "image/source/code_bytes.h"
#include "ptdecode/error.h"

namespace ptd {

struct PageDump {
  std::vector<MemoryRange> ranges;      ///< sorted by address; pages that follow each other in both files are one range
  std::vector<uint64_t> odd_addresses;  ///< not page aligned: their pages are ignored
};

/// Reads a dump of memory pages: page i of `dump_path` has the address that is the i-th little-endian u64 of `addresses_path`. Of two pages
/// at one address the first wins.
/// Errors: file_open; file_format if the counts differ (the message names both) or no address is page aligned.
Result<PageDump> read_page_dump(const std::string& dump_path, const std::string& addresses_path);

}  // namespace ptd
