// Build ids as text, and the paths of files in build-id caches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Lower-case hexadecimal digits of raw bytes.
[[nodiscard]] std::string hex_of(Bytes bytes);
[[nodiscard]] std::string hex_of(std::string_view raw);

/// Reads a build id in any spelling met in recordings: raw bytes, hex digits, or the dashed UUID form of LLDB. "" if it is empty or all
/// zeros.
[[nodiscard]] std::string normalize_build_id(std::string_view text_or_raw);

/// Build ids are equal up to zero padding: perf stores 20 bytes even for ids of 16 (tools/perf "build-id" sections).
[[nodiscard]] bool same_build_id(std::string_view a_hex, std::string_view b_hex);

/// Where a cache keeps a file of kind `kind` ("elf", "debug", "kallsyms", "vdso"), newest layout first:
/// CACHE/.build-id/xx/yyyy/kind, and the older link CACHE/.build-id/xx/yyyy that is the file itself.
[[nodiscard]] std::vector<std::string> cache_paths(const std::string& cache_dir, std::string_view build_id_hex, std::string_view kind);

/// Separate debug files of a build id below a debug directory: DIR/.build-id/xx/yyyy.debug.
[[nodiscard]] std::string debug_path(const std::string& debug_dir, std::string_view build_id_hex);

}  // namespace ptd
