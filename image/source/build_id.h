// What connects a file with its debug information: build ids, and the paths of files in build-id caches; the CRC of .gnu_debuglink.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Returns raw bytes as lower-case hexadecimal digits.
[[nodiscard]] std::string hex_of(Bytes bytes);
[[nodiscard]] std::string hex_of(std::string_view raw);

/// Reads a build id in any form that recordings use: raw bytes, hex digits, or LLDB's UUID form with dashes. "" if it is empty or zero.
[[nodiscard]] std::string normalize_build_id(std::string_view text_or_raw);

/// Compares build ids, ignoring zero padding: perf stores 20 bytes even for ids of 16 (tools/perf "build-id" sections).
[[nodiscard]] bool same_build_id(std::string_view a_hex, std::string_view b_hex);

/// Returns the paths in a cache for a file of kind `kind` ("elf", "debug", "kallsyms", "vdso"), newest layout first:
/// CACHE/.build-id/xx/yyyy/kind, and the older link CACHE/.build-id/xx/yyyy to the file itself.
[[nodiscard]] std::vector<std::string> cache_paths(const std::string& cache_dir, std::string_view build_id_hex, std::string_view kind);

/// Returns the path of a build id's separate debug file below a debug directory: DIR/.build-id/xx/yyyy.debug.
[[nodiscard]] std::string debug_path(const std::string& debug_dir, std::string_view build_id_hex);

/// Returns the CRC of .gnu_debuglink: CRC-32 of IEEE 802.3, as zlib's crc32() ([GDB] "Separate Debug Files"). `before`: the result for the
/// bytes before these.
[[nodiscard]] uint32_t crc32_of(Bytes bytes, uint32_t before = 0);

}  // namespace ptd
