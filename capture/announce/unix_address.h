// Addresses of AF_UNIX sockets.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <string_view>

namespace ptd {

/// Writes the address of a socket that has a name in the file system. False: the path is too long.
[[nodiscard]] inline bool set_unix_address(std::string_view path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::copy(path.begin(), path.end(), address.sun_path);
  return true;
}

}  // namespace ptd
