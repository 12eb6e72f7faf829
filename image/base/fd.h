// Fd: an open file descriptor that closes itself; write_all(): writes a whole buffer to a descriptor; written_bytes(): a size without
// holes.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace ptd {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool ok() const { return fd_ >= 0; }
  /// Returns the descriptor and gives up ownership of it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// Writes all bytes, even if the descriptor is non-blocking or signals interrupt. Returns false on failure, with the reason in errno.
[[nodiscard]] bool write_all(int fd, const char* data, size_t size_bytes);

/// Returns how much of a file has been written: its size without holes. 0 if the descriptor is invalid.
[[nodiscard]] uint64_t written_bytes(int fd);

}  // namespace ptd
