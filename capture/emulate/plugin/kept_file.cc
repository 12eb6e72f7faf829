// Copies of files that no path names.
#include "capture/emulate/plugin/kept_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "capture/emulate/plugin/mapped_file_id.h"
#include "capture/emulate/shared/mapped_log.h"
#include "capture/emulate/shared/user_config.h"
#include "image/base/fnv.h"

namespace ptd::emulate {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

constexpr char kMagic[] = "\177ELF";
constexpr size_t kMagicBytes = 4;

bool is_elf(int fd) {
  char magic[kMagicBytes] = {};
  return pread(fd, magic, sizeof magic, 0) == static_cast<ssize_t>(sizeof magic) && std::memcmp(magic, kMagic, sizeof magic) == 0;
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

// Other threads and processes may copy the same file: each writes a file of its own, and one replaces the other. `write_some(out, at)`
// writes from offset `at` on and returns how much, as write() does.
template <class WriteSome>
bool copy_to(const std::string& path, uint64_t bytes, WriteSome&& write_some) {
  if (bytes > kMostBytes || !may_have(bytes) || !LogSpace::take(path.substr(0, path.rfind('/')), bytes)) return false;
  const std::string part = path + "." + std::to_string(getpid()) + "." + std::to_string(gettid());
  const int out = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (out < 0) return false;
  uint64_t at = 0;
  for (ssize_t step = 1; at < bytes && step > 0; at += static_cast<uint64_t>(std::max<ssize_t>(step, 0))) step = write_some(out, at);
  close(out);
  if (at == bytes && rename(part.c_str(), path.c_str()) == 0) return true;
  (void)unlink(part.c_str());
  return false;
}

bool copy_file(const std::string& path, int fd, uint64_t bytes) {
  return copy_to(path, bytes, [&](int out, uint64_t at) {
    auto from = static_cast<off_t>(at);
    return sendfile(out, fd, &from, bytes - at);
  });
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
    if (name.size() > 1 && access(copy.c_str(), F_OK) != 0 && !copy_file(copy, fd, static_cast<uint64_t>(info.st_size))) name = "?";
    close(fd);
    return name;
  }
  return "?";
}

std::string keep_memory(const std::string& folder, uint64_t start, uint64_t size_bytes) {
  constexpr uint64_t kMostMemoryBytes = uint64_t{1} << 20;
  const auto* memory = reinterpret_cast<const std::byte*>(start);
  if (size_bytes < kMagicBytes || size_bytes > kMostMemoryBytes || std::memcmp(memory, kMagic, kMagicBytes) != 0) return {};
  const std::string name = "memory-" + std::to_string(fnv1a({memory, size_bytes})), copy = folder + "/" + name;
  const auto write_some = [&](int out, uint64_t at) { return write(out, memory + at, size_bytes - at); };
  return access(copy.c_str(), F_OK) == 0 || copy_to(copy, size_bytes, write_some) ? name : std::string();
}

}  // namespace ptd::emulate
