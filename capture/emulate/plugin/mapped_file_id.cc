// Build ids: see mapped_file_id.h.
#include "capture/emulate/plugin/mapped_file_id.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/base/mapped_file.h"
#include "image/source/build_id_note.h"

namespace ptd::emulate {

// /proc/self/maps and stat() name the same file differently on some file systems (overlayfs, btrfs), so a mapping is compared with one.
int open_mapped(const std::string& path, unsigned major, unsigned minor, unsigned long inode) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  const auto file = MappedFile::open(fd, {});
  const FileId found = file.ok() ? (*file)->mapped_id() : FileId();
  if (file.ok() && found.inode == inode && found.maj == major && found.min == minor) return fd;
  close(fd);
  return -1;
}

int64_t written_at_ns(int fd) {
  constexpr int64_t kSecond = 1'000'000'000;
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_mtim.tv_sec * kSecond + info.st_mtim.tv_nsec : 0;
}

bool content_of(const std::string& path, unsigned major, unsigned minor, unsigned long inode, FileContent& content) {
  const int fd = open_mapped(path, major, minor, inode);
  if (fd < 0) return false;
  content = {read_build_id(fd), written_at_ns(fd)};
  close(fd);
  return true;
}

}  // namespace ptd::emulate
