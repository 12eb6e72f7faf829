// Page dumps: 4096-byte pages in one file, their addresses in another.
#pragma once

#include <string>
#include <vector>

#include "image/source/code_bytes.h"
#include "ptdecode/error.h"

namespace ptd {

struct PageDump {
  std::vector<MemoryRange> ranges;      ///< sorted by address; adjacent pages are joined if they are adjacent in both files
  std::vector<uint64_t> odd_addresses;  ///< not page aligned: their pages are ignored
  std::vector<Ip> contradicted;         ///< sorted: a later page of the same address has other bytes
};

/// Reads a dump of memory pages: the address of page i of `dump_path` is the i-th little-endian u64 of `addresses_path`. If two pages have
/// the same address, the first is used.
/// Errors: file_open; file_format if the counts differ (the message names both) or no address is page aligned.
Result<PageDump> read_page_dump(const std::string& dump_path, const std::string& addresses_path);

}  // namespace ptd
