// MappingFile: see mapping_file.h.
#include "image/stash/mapping_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "image/source/build_id.h"
#include "image/source/build_id_note.h"

namespace ptd::stash {
namespace {

std::string process_path(const ProcessMapping& mapping) { return "/proc/" + std::to_string(mapping.pid); }

std::string range_text(const ProcessMapping& mapping) {
  std::array<char, 48> range{};
  std::snprintf(range.data(), range.size(), "%llx-%llx", static_cast<unsigned long long>(mapping.address),  // NOLINT: like the kernel
                static_cast<unsigned long long>(mapping.address + mapping.size_bytes));
  return range.data();
}

/// Returns whether /proc/PID/maps lists the mapping with the recorded device and inode, which it takes from the same source as records. On
/// a file system with several volumes (btrfs) stat() returns other devices.
bool is_mapped_so(const ProcessMapping& mapping) {
  constexpr int kFields = 4;
  std::ifstream maps(process_path(mapping) + "/maps");
  std::string line;
  while (std::getline(maps, line)) {
    unsigned long long first = 0, last = 0, inode = 0;  // NOLINT: required by sscanf
    unsigned maj = 0, min = 0;
    const int fields = std::sscanf(line.c_str(), "%llx-%llx %*s %*x %x:%x", &first, &last, &maj, &min);
    if (fields < kFields || first != mapping.address) continue;
    if (std::sscanf(line.c_str(), "%*s %*s %*s %*s %llu", &inode) != 1) return false;
    return last == mapping.address + mapping.size_bytes && inode == mapping.inode && maj == mapping.maj && min == mapping.min;
  }
  return false;
}

std::string reason(const ProcessMapping& mapping, int number) {
  struct stat info {};
  if (number != ENOENT && number != ESRCH) return std::string("it cannot be read (") + std::strerror(number) + ")";
  if (::stat(process_path(mapping).c_str(), &info) != 0) return "its process ended before it could be read";
  return "its mapping changed before it could be read";
}

}  // namespace

MappingFile open_mapping(const ProcessMapping& mapping) {
  MappingFile file;
  const std::string path = process_path(mapping) + "/map_files/" + range_text(mapping);
  // First without calling the file's own open(), which may be a driver's.
  const Fd place(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!place.ok() || ::fstat(place.get(), &file.info) != 0) {
    file.why = reason(mapping, errno);
    return file;
  }
  if (!S_ISREG(file.info.st_mode)) {
    file.why = "not a regular file";
    return file;
  }
  const bool by_id = !mapping.build_id.empty();
  const bool same_device = mapping.maj == major(file.info.st_dev) && mapping.min == minor(file.info.st_dev);
  const bool same = mapping.inode != 0 && mapping.inode == file.info.st_ino && (same_device || is_mapped_so(mapping));
  if (!by_id && !same) {
    file.why = mapping.inode == 0 ? "the file cannot be identified" : "another file was mapped there before it could be read";
    return file;
  }
  file.fd = Fd(::open(("/proc/self/fd/" + std::to_string(place.get())).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.fd.ok()) {
    file.why = reason(mapping, errno);
  } else if (by_id && !same_build_id(hex_of(read_build_id(file.fd.get())), mapping.build_id)) {
    file.fd = Fd();
    file.why = "another build was mapped there before it could be read";
  }
  return file;
}

bool is_written_through(int fd, uint32_t mapping_flags) {
  if ((mapping_flags & MAP_SHARED) == 0) return false;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals < 0 || (seals & F_SEAL_WRITE) == 0;
}

}  // namespace ptd::stash
