// Read-only file mappings.
#include "image/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "image/base/read_files.h"
#include "image/base/shrunk_files.h"
#include "image/base/system_error.h"

namespace ptd {
namespace {

int64_t ns_of(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) { return open(open_regular(path), path); }

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const RegularFile& file, const std::string& path) {
  if (file.fd.ok()) return open(file.fd.get(), path);
  return Error{file.code(), path + ": " + file.why(), 0};
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return Error{ErrorCode::not_regular_file, path + ": not a regular file", 0};
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->path_ = path;
  file->modified_ns_ = ns_of(info.st_mtim);
  file->changed_ns_ = ns_of(info.st_ctim);
  file->identity_ = {info.st_dev, info.st_ino};
  note_read_file(fd);
  const auto size = static_cast<size_t>(info.st_size);
  if (size > 0) {
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED) return system_error(path, ErrorCode::read_failed);
    file->bytes_ = Bytes(static_cast<const std::byte*>(memory), size);
    watch_mapping(file->bytes_, path, file->identity_);
  } else {
    note_size(file->identity_, 0);
  }
  return std::shared_ptr<const MappedFile>(std::move(file));
}

FileId MappedFile::mapped_id() const {
  constexpr int kFields = 4;
  std::ifstream maps(bytes_.empty() ? "" : "/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    unsigned long long first = 0, inode = 0;  // NOLINT: required by sscanf
    FileId id;
    const int fields = std::sscanf(line.c_str(), "%llx-%*x %*s %*x %x:%x %llu", &first, &id.maj, &id.min, &inode);
    id.inode = inode;
    if (fields == kFields && first == reinterpret_cast<uintptr_t>(bytes_.data())) return id;
  }
  return {};
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  unwatch_mapping(bytes_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::optional<std::pair<uint64_t, uint64_t>> file_identity(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? std::optional(std::pair<uint64_t, uint64_t>(info.st_dev, info.st_ino)) : std::nullopt;
}

std::string read_text_file(const std::string& path, uint64_t limit_bytes) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return text;
  note_read_file(fd);
  std::array<char, 1U << 16> buffer{};
  while (text.size() < limit_bytes) {
    const ssize_t got = ::read(fd, buffer.data(), std::min<uint64_t>(buffer.size(), limit_bytes - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  ::close(fd);
  return text;
}

bool is_regular_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace ptd
