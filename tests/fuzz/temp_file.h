// A file that lives in memory, for entries that open by path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <span>
#include <string>

namespace ptd::test {

/// Owns the bytes until it is destroyed; `path()` opens them.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const unsigned char> bytes) : fd_(memfd_create("input", 0)) {
    size_t done = 0;
    while (fd_ >= 0 && done < bytes.size()) {
      const ssize_t got = write(fd_, bytes.data() + done, bytes.size() - done);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
  }
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace ptd::test
