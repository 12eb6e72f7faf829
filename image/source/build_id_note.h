// Reads the build id from the notes of an open file.
#pragma once

#include <string>

namespace ptd {

/// The build id in the notes of an ELF file, as raw bytes; empty if it has none, or is no ELF file of this machine's byte order. Reads only
/// what it needs, by read(): a file that is cut meanwhile is a file without one.
[[nodiscard]] std::string read_build_id(int fd);

}  // namespace ptd
