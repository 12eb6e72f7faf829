// The header of a perf.data file: its form and the positions of its parts.
#pragma once

#include <string>
#include <vector>

#include "perfio/perf_reader.h"
#include "ptdecode/error.h"

namespace ptd::perfio {

inline constexpr size_t kMaxAttrs = 65536;

/// The form of a recording, from its first bytes.
struct FileLayout {
  bool pipe = false;
  uint64_t data_begin = 0, data_end = 0;  ///< the records; data_end never lies beyond the file
  std::vector<EventAttr> attrs;           ///< file form only
  Features features;                      ///< file form only
  Bytes tracing_data;                     ///< TRACING_DATA section, empty if absent
};

/// Reads header, attrs and feature sections. Errors: not perf.data, version 1, other byte order. A file that ends early is not an error:
/// missing parts are reported in `damage`. A data size of 0 (recorder killed) means that records extend to the end without features.
Result<FileLayout> read_file_header(Bytes file, const std::string& path, ReadDamage& damage);

}  // namespace ptd::perfio
