// The build id of a file that the program maps.
#pragma once

#include <string>

namespace ptd::emulate {

/// Returns the GNU build id of the ELF file at descriptor `fd`, raw bytes; "" if it has none or is no ELF file of 64 bits. Limitation: reads
/// at most 16 note segments of 64 KiB.
[[nodiscard]] std::string build_id_of(int fd);
/// The same for the file at `path`, if it is still the one with this device and inode; false if it is not.
[[nodiscard]] bool build_id_of(const std::string& path, unsigned major, unsigned minor, unsigned long inode, std::string& id);
/// Opens the file at `path` to read if it is the one with this device and inode; -1 if not.
[[nodiscard]] int open_mapped(const std::string& path, unsigned major, unsigned minor, unsigned long inode);

}  // namespace ptd::emulate
