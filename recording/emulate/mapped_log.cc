// MappedLog: windows of a file, mapped one after the other.
#include "recording/emulate/mapped_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace ptd::emulate {
namespace {

constexpr uint64_t kWindowBytes = 256 * 1024;

}  // namespace

bool MappedLog::open(const std::string& path) {
  close();
  path_ = path;
  size_ = window_at_ = 0;
  failed_ = true;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  void* header = MAP_FAILED;
  if (posix_fallocate(fd, 0, kMappedLogHeaderBytes) == 0) {
    header = mmap(nullptr, kMappedLogHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  if (header == MAP_FAILED) return false;
  length_ = static_cast<uint64_t*>(header);
  failed_ = !map_window();
  return !failed_;
}

bool MappedLog::map_window() {
  if (window_ != nullptr) munmap(window_, kWindowBytes);
  window_ = nullptr;
  window_at_ = size_ / kWindowBytes * kWindowBytes;
  const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  const auto offset = static_cast<off_t>(kMappedLogHeaderBytes + window_at_);
  void* window = MAP_FAILED;
  if (posix_fallocate(fd, offset, kWindowBytes) == 0) window = mmap(nullptr, kWindowBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  ::close(fd);
  if (window == MAP_FAILED) return false;
  window_ = static_cast<std::byte*>(window);
  return true;
}

bool MappedLog::append(Bytes bytes) {
  while (!bytes.empty() && !failed_) {
    if (size_ - window_at_ == kWindowBytes && !map_window()) {
      failed_ = true;
      break;
    }
    const size_t piece = std::min<size_t>(bytes.size(), kWindowBytes - (size_ - window_at_));
    std::memcpy(window_ + (size_ - window_at_), bytes.data(), piece);
    size_ += piece;
    __atomic_store_n(length_, size_, __ATOMIC_RELEASE);
    bytes = bytes.subspan(piece);
  }
  return !failed_;
}

void MappedLog::close() {
  if (window_ != nullptr) munmap(window_, kWindowBytes);
  if (length_ != nullptr) munmap(length_, kMappedLogHeaderBytes);
  window_ = nullptr;
  length_ = nullptr;
  failed_ = true;
}

}  // namespace ptd::emulate
