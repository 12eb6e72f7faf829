// MappedLog: windows of a file, mapped one after the other.
#include "capture/emulate/shared/mapped_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace ptd::emulate {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{1} << 30, kSmallWindowBytes = 256 * 1024;
// Given a place on the disk at once: a log's first part, and at most.
constexpr uint64_t kFirstRoomBytes = 4 * 1024, kRoomBytes = 64 * 1024;
constexpr uint64_t kKeptBytes = uint64_t{8} << 20;  // of a window in the process's memory, at most

SharedCount g_used;
uint64_t g_most_bytes = 0;

// A file that grows beyond the program's limit would kill it by SIGXFSZ.
bool may_grow_to(uint64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur) return true;
  errno = EFBIG;
  return false;
}

// The file is as large as its window, and sparse: a fault would fill many pages, which a short log never uses, with zeros.
void no_read_ahead(void* mapped, uint64_t bytes) { (void)madvise(mapped, bytes, MADV_RANDOM); }

}  // namespace

bool MappedLog::open(const std::string& path) {
  close();
  path_ = path;
  size_ = window_at_ = window_bytes_ = room_ = released_ = 0;
  failed_ = true;
  if (!may_grow_to(kMappedLogHeaderBytes)) return false;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  void* header = MAP_FAILED;
  if (posix_fallocate(fd, 0, kMappedLogHeaderBytes) == 0) {
    header = mmap(nullptr, kMappedLogHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  if (header == MAP_FAILED) return false;
  no_read_ahead(header, kMappedLogHeaderBytes);
  header_ = static_cast<uint64_t*>(header);
  failed_ = false;
  if (!map_window() || !make_room()) cut();
  return !failed_;
}

// The file is sparse after the written part, so that a large window costs nothing.
bool MappedLog::map_window() {
  unmap_window();
  const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  const uint64_t offset = kMappedLogHeaderBytes + size_;
  for (const uint64_t bytes : {kWindowBytes, kSmallWindowBytes}) {
    if (!may_grow_to(offset + bytes) || ftruncate(fd, static_cast<off_t>(offset + bytes)) != 0) continue;
    void* window = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, static_cast<off_t>(offset));
    if (window == MAP_FAILED) continue;
    no_read_ahead(window, bytes);
    window_ = static_cast<std::byte*>(window);
    window_at_ = room_ = size_;
    window_bytes_ = bytes;
    break;
  }
  ::close(fd);
  return window_ != nullptr;
}

// Where the disk is full a plain write to the window would be a SIGBUS.
bool MappedLog::make_room() {
  std::byte* at = window_ + (room_ - window_at_);
  const uint64_t bytes = std::min(std::clamp(room_, kFirstRoomBytes, kRoomBytes), window_at_ + window_bytes_ - room_);
  if (!LogSpace::take(path_, bytes)) return false;
#ifdef MADV_POPULATE_WRITE
  if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0) {
    room_ += bytes;
    return true;
  }
#endif
  const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);  // an older kernel (before Linux 5.14), or no space
  if (fd < 0) return false;
  const bool done = posix_fallocate(fd, static_cast<off_t>(kMappedLogHeaderBytes + room_), static_cast<off_t>(bytes)) == 0;
  ::close(fd);
  if (done) room_ += bytes;
  return done;
}

void MappedLog::cut() {
  failed_ = true;
  room_ = size_;
  if (header_ != nullptr) __atomic_store_n(header_ + 1, 1, __ATOMIC_RELEASE);
}

// Pages that are full stay in the file's page cache, which the kernel writes back and takes away as it needs memory.
void MappedLog::release_full_pages() {
  released_ = std::max(released_, window_at_);
  if (size_ - released_ < kKeptBytes) return;
  const uint64_t bytes = (size_ - released_) / kRoomBytes * kRoomBytes;
  (void)madvise(window_ + (released_ - window_at_), bytes, MADV_DONTNEED);
  released_ += bytes;
}

bool MappedLog::append_slowly(Bytes bytes) {
  while (!bytes.empty() && !failed_) {
    if ((size_ == window_at_ + window_bytes_ && !map_window()) || (size_ == room_ && !make_room())) {
      cut();
      break;
    }
    const size_t piece = std::min<size_t>(bytes.size(), room_ - size_);
    std::memcpy(window_ + (size_ - window_at_), bytes.data(), piece);
    size_ += piece;
    bytes = bytes.subspan(piece);
  }
  if (failed_) return false;
  release_full_pages();
  __atomic_store_n(header_, size_, __ATOMIC_RELEASE);
  return true;
}

void MappedLog::unmap_window() {
  if (window_ != nullptr) munmap(window_, window_bytes_);
  window_ = nullptr;
}

void MappedLog::close() {
  unmap_window();
  if (header_ != nullptr) munmap(header_, kMappedLogHeaderBytes);
  header_ = nullptr;
  room_ = size_;
  failed_ = true;
}

bool SharedCount::create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  constexpr std::array<uint64_t, kWords> kZeros{};
  const bool done = ::write(fd, kZeros.data(), sizeof kZeros) == static_cast<ssize_t>(sizeof kZeros);
  ::close(fd);
  return done;
}

uint64_t SharedCount::read(const std::string& path) {
  std::array<uint64_t, kWords> words{};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = ::read(fd, words.data(), sizeof words);
  ::close(fd);
  return got == kUnopenedBytes ? std::max<uint64_t>(words[0], 1) : got < static_cast<ssize_t>(sizeof(uint64_t)) ? 0 : words[0];
}

void SharedCount::write(const std::string& path, uint64_t value) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!::pwrite(fd, &value, sizeof value, 0);
  ::close(fd);
}

void SharedCount::open(const std::string& path) {
  unopened_ = path;
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* page = mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (page == MAP_FAILED) return;
  count_ = static_cast<uint64_t*>(page);
  unopened_.clear();
}

// A process without a free descriptor makes the file shorter, which needs neither a descriptor nor disk space.
uint64_t SharedCount::add(uint64_t number) {
  if (count_ == nullptr && !unopened_.empty()) (void)!::truncate(unopened_.c_str(), kUnopenedBytes);
  return count_ != nullptr ? __atomic_add_fetch(count_, number, __ATOMIC_RELAXED) : 0;
}

void SharedCount::add_with_detail(uint64_t detail) {
  const uint64_t count = add();
  if (count != 0 && count <= kMostDetails) __atomic_store_n(count_ + count, detail, __ATOMIC_RELAXED);
}

std::vector<uint64_t> SharedCount::details(const std::string& path) {
  std::vector<uint64_t> words(kWords);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd >= 0 ? ::read(fd, words.data(), words.size() * sizeof(uint64_t)) : 0;
  if (fd >= 0) ::close(fd);
  if (got < static_cast<ssize_t>(words.size() * sizeof(uint64_t))) return {};
  return {words.begin() + 1, words.begin() + 1 + static_cast<ptrdiff_t>(std::min<uint64_t>(words[0], kMostDetails))};
}

void LogSpace::open(const std::string& path, uint64_t most_bytes) {
  g_used.open(path);
  g_most_bytes = most_bytes;
}

bool LogSpace::take(const std::string& path, uint64_t bytes) {
  const uint64_t used = g_used.add(bytes);
  struct statvfs disk {};
  const bool known = statvfs(path.c_str(), &disk) == 0;  // not where the program changed its root or user
  const uint64_t unit = disk.f_frsize, reserve = std::min(kReserveBytes, disk.f_blocks * unit / kReserveShare);
  const bool full = known && disk.f_bavail * unit < reserve + used;
  if (used == 0 || (!full && (g_most_bytes == 0 || used <= g_most_bytes))) return true;
  errno = ENOSPC;
  return false;
}

}  // namespace ptd::emulate
