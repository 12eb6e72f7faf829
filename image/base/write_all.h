// write_all(): writes a whole buffer to a descriptor.
#pragma once

#include <cstddef>

namespace ptd {

/// Writes all bytes, also to a descriptor that does not block and after interruptions by signals. Returns false if that failed; errno has
/// the reason then.
[[nodiscard]] bool write_all(int fd, const char* data, size_t size_bytes);

}  // namespace ptd
