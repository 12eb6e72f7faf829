// The build id of a file that the program maps, and when it was written to.
#pragma once

#include <cstdint>
#include <string>

namespace ptd::emulate {

struct FileContent {
  std::string build_id;  ///< of read_build_id()
  int64_t written_at_ns = 0;
};
/// Reads what identifies the content of the file at `path`, if it is still the one with this device and inode; false if it is not.
[[nodiscard]] bool content_of(const std::string& path, unsigned major, unsigned minor, unsigned long inode, FileContent& content);
/// Returns when the open file was last written to, in nanoseconds since the epoch; 0: unknown.
[[nodiscard]] int64_t written_at_ns(int fd);
/// Opens the file at `path` to read if it is the one with this device and inode; -1 if not.
[[nodiscard]] int open_mapped(const std::string& path, unsigned major, unsigned minor, unsigned long inode);

}  // namespace ptd::emulate
