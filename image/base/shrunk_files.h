// Files that became shorter while they were mapped: reads past the new end are zero bytes and are reported, instead of ending the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

/// Registers a mapping of a file, after note_size(). `identity` is device and inode. The first call installs a handler of SIGBUS if the
/// signal has its default action. A read past the file's new end then gives zero bytes, and shrunk_file_count() grows. Any thread.
void watch_mapping(Bytes mapping, const std::string& path, std::pair<uint64_t, uint64_t> identity);
/// Notes that a file has this size now: its mappings that are longer read zero bytes past it. Call it where a file is opened again, which
/// may show nothing but the new size. Any thread.
void note_size(std::pair<uint64_t, uint64_t> identity, uint64_t size_bytes);
/// Call before the memory is unmapped. Notes whether the file is shorter than its mapping by now.
void unwatch_mapping(Bytes mapping);

/// Returns the number of mapped files of this process that are known to have become shorter. One atomic read; it never decreases.
[[nodiscard]] uint64_t shrunk_file_count();
/// Returns the paths of these files after `known` (a former count), after a look at the sizes of all that are mapped now.
[[nodiscard]] std::vector<std::string> shrunk_files(uint64_t known = 0);
/// Returns the error `changed` if there are such files after `known`, after the same look.
[[nodiscard]] std::optional<Error> shrunk_error(uint64_t known);

/// A part of a mapped file.
struct MappedPlace {
  std::string path;  ///< as it was opened
  uint64_t file_offset_bytes = 0, file_bytes = 0;
};
/// Returns where `part` lies in a file that is mapped now and watched; nothing for other memory. Any thread.
[[nodiscard]] std::optional<MappedPlace> mapped_place(Bytes part);

}  // namespace ptd
