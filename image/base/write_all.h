// write_all(): writes a whole buffer to a descriptor.
#pragma once

#include <cstddef>

namespace ptd {

/// Writes all bytes, even if the descriptor is non-blocking or signals interrupt. Returns false on failure, with the reason in errno.
[[nodiscard]] bool write_all(int fd, const char* data, size_t size_bytes);

}  // namespace ptd
