// Lost privileges: see lost_privileges.h.
#include "capture/emulate/lost_privileges.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace ptd::emulate {

std::vector<std::string> lost_privileges(const std::vector<std::string>& mapped) {
  std::vector<std::string> lost;
  for (const std::string& path : mapped) {
    struct stat info {};
    if (!path.starts_with('/') || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    std::string rights;
    const auto add = [&rights](const std::string& more) { rights += (rights.empty() ? "" : ", ") + more; };
    const bool runs = (info.st_mode & S_IXUSR) != 0;
    if (runs && (info.st_mode & S_ISUID) != 0 && info.st_uid != ::geteuid()) add("setuid to user " + std::to_string(info.st_uid));
    if ((info.st_mode & S_ISGID) != 0 && (info.st_mode & S_IXGRP) != 0 && info.st_gid != ::getegid())
      add("setgid to group " + std::to_string(info.st_gid));
    if (::geteuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) add("given capabilities");
    if (!rights.empty()) lost.push_back(path + " is " + rights + ": in the emulator it ran only with the rights of this user");
  }
  return lost;
}

}  // namespace ptd::emulate
