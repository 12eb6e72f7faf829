// Copies of files that no path names.
#include "capture/emulate/plugin/kept_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <sstream>

#include "capture/emulate/plugin/mapped_file_id.h"
#include "capture/emulate/shared/mapped_log.h"
#include "capture/emulate/shared/user_config.h"

namespace ptd::emulate {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

bool is_elf(int fd) {
  char magic[4] = {};
  return pread(fd, magic, sizeof magic, 0) == static_cast<ssize_t>(sizeof magic) && std::memcmp(magic, "\177ELF", sizeof magic) == 0;
}

// An empty file, which cannot be opened as a mapped one. Its first pages can be mapped nevertheless.
bool is_empty(const std::string& path, unsigned long inode) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_ino == inode && info.st_size == 0;
}

// A file that grows beyond the program's limit would kill it by SIGXFSZ.
bool may_have(uint64_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur);
}

// Other threads and processes may copy the same file: each writes a file of its own, and one replaces the other.
bool copy_to(const std::string& path, int fd, uint64_t bytes) {
  if (bytes > kMostBytes || !may_have(bytes) || !LogSpace::take(path.substr(0, path.rfind('/')), bytes)) return false;
  const std::string part = path + "." + std::to_string(getpid()) + "." + std::to_string(gettid());
  const int out = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (out < 0) return false;
  off_t at = 0;
  while (at < static_cast<off_t>(bytes) && sendfile(out, fd, &at, bytes - static_cast<uint64_t>(at)) > 0) {
  }
  close(out);
  if (at == static_cast<off_t>(bytes) && rename(part.c_str(), path.c_str()) == 0) return true;
  (void)unlink(part.c_str());
  return false;
}

// The name says which content it is: files are written to, and inode numbers are used again.
std::string name_of_copy(const struct stat& file) {
  std::ostringstream name;
  name << "file-" << file.st_dev << '-' << file.st_ino << '-' << file.st_size << '-' << file.st_mtim.tv_sec << '-' << file.st_mtim.tv_nsec;
  return name.str();
}

}  // namespace

MappedFileLine::MappedFileLine(const std::string& line) {
  std::istringstream words(line);
  words >> start >> size_bytes >> offset_bytes >> major >> minor >> inode >> prot >> path;
  path = text_of_hex(path);
}

std::string keep_unnamed(const std::string& folder, const MappedFileLine& file, std::vector<std::string> paths) {
  if (!file.path.starts_with("/memfd:") && !file.path.ends_with(" (deleted)")) return {};
  if (const int named = open_mapped(file.path, file.major, file.minor, file.inode); named >= 0) {
    close(named);
    return {};
  }
  char range[64];
  (void)std::snprintf(range, sizeof range, "/proc/self/map_files/%lx-%lx", file.start, file.start + file.size_bytes);
  paths.emplace_back(range);
  for (const std::string& path : paths) {
    const int fd = open_mapped(path, file.major, file.minor, file.inode);
    if (fd < 0) {
      if (is_empty(path, file.inode)) return {};
      continue;
    }
    struct stat info {};
    std::string name;
    if (is_elf(fd)) name = fstat(fd, &info) == 0 ? name_of_copy(info) : "?";
    const std::string copy = folder + "/" + name;
    if (name.size() > 1 && access(copy.c_str(), F_OK) != 0 && !copy_to(copy, fd, static_cast<uint64_t>(info.st_size))) name = "?";
    close(fd);
    return name;
  }
  return "?";
}

}  // namespace ptd::emulate
