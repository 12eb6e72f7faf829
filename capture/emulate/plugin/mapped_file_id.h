// The build id of a file that the program maps.
#pragma once

#include <string>

namespace ptd::emulate {

/// Reads the build id of the file at `path` (read_build_id()) if it is still the one with this device and inode; false if it is not.
[[nodiscard]] bool build_id_of(const std::string& path, unsigned major, unsigned minor, unsigned long inode, std::string& id);
/// Opens the file at `path` to read if it is the one with this device and inode; -1 if not.
[[nodiscard]] int open_mapped(const std::string& path, unsigned major, unsigned minor, unsigned long inode);

}  // namespace ptd::emulate
