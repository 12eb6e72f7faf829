// Writing to descriptors.
#include "image/base/fd.h"

#include <poll.h>
#include <unistd.h>

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

}  // namespace ptd
