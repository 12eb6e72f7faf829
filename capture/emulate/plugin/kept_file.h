// Copies of ELF files that no path names, made while the program still has them: a memfd, a deleted file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ptd::emulate {

/// A mapped file, by a line of file_maps().
struct MappedFileLine {
  explicit MappedFileLine(const std::string& line);
  unsigned long start = 0, size_bytes = 0, offset_bytes = 0, inode = 0;
  unsigned major = 0, minor = 0, prot = 0;
  std::string path;
};

/// Copies the file into `folder` if it is an ELF file that no path names, once for all its mappings. `paths`: where it may be opened, such
/// as /proc/self/fd/3. Returns the copy's name in the folder; "" if none is needed, "?" if it cannot be made.
[[nodiscard]] std::string keep_unnamed(const std::string& folder, const MappedFileLine& file, std::vector<std::string> paths);

/// Copies an ELF file that is only in memory, as a vdso, into `folder`. Returns the copy's name in the folder, which is that of its
/// content; "" if there is none, or if it cannot be copied.
[[nodiscard]] std::string keep_memory(const std::string& folder, uint64_t start, uint64_t size_bytes);

}  // namespace ptd::emulate
