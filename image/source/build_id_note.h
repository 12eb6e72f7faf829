// Reads the build id from the notes of an open file.
#pragma once

#include <string>

namespace ptd {

/// Returns the build id in the notes of an ELF file (segments, else sections), as raw bytes; empty if it has none, if the id is longer than
/// a record of a mapping takes, or if it is not an ELF file in this machine's byte order.
/// Uses read() on the needed parts only, so a file that is truncated meanwhile is treated as one without a build id.
[[nodiscard]] std::string read_build_id(int fd);

}  // namespace ptd
