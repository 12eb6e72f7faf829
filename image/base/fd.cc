// See fd.h.
#include "image/base/fd.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ptd {

bool write_all(int fd, const char* data, size_t size_bytes) {
  while (size_bytes > 0) {
    const ssize_t done = ::write(fd, data, size_bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN) {
      pollfd writable{fd, POLLOUT, 0};
      (void)::poll(&writable, 1, -1);
      continue;
    }
    if (done == 0) errno = EIO;
    if (done <= 0) return false;
    data += done;
    size_bytes -= static_cast<size_t>(done);
  }
  return true;
}

uint64_t written_bytes(int fd) {
  constexpr uint64_t kBlock = 512;  // of st_blocks
  struct stat info {};
  if (::fstat(fd, &info) != 0) return 0;
  const auto size = static_cast<uint64_t>(info.st_size), blocks = static_cast<uint64_t>(info.st_blocks);
  return blocks == 0 ? size : std::min(size, blocks * kBlock);  // some file systems count no blocks
}

}  // namespace ptd
