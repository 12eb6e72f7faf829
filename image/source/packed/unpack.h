// Parts of ELF files that are compressed in ways that libelf does not read. The only files of the module that include liblzma and libzstd.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "image/base/fd.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

/// Returns the most bytes to which the debug sections of a file may uncompress. `written`: written_bytes() of the file.
[[nodiscard]] constexpr uint64_t most_unpacked_bytes(uint64_t written) {
  constexpr uint64_t kAlways = 256U << 20, kMostTimes = 32;
  return std::max(kAlways, written > ~uint64_t{0} / kMostTimes ? ~uint64_t{0} : kMostTimes * written);
}

/// Returns the content of an xz stream, as .gnu_debugdata holds one. The content may have 16 MiB and 32 times the stream's size, and
/// uncompressing may take 128 MiB.
/// Errors, with a sentence fragment: bad_compression; truncated; unsupported_compression (this build has no liblzma).
Result<std::vector<std::byte>> unpack_xz(Bytes packed);

/// Returns a copy in memory of an ELF file that has sections compressed with zstd: these follow the content, uncompressed, and the section
/// headers say so. No descriptor if the file has none. libelf reads them since 0.189, if it was built with zstd. `path` names the file.
/// Errors: bad_compression (damaged, or more than most_unpacked_bytes()); out_of_memory.
Result<Fd> unpack_zstd_sections(int fd, const std::string& path);

}  // namespace ptd
