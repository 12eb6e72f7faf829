// Buffered output.
#include "perfio/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "image/base/system_error.h"
#include "image/base/whole_file.h"

namespace ptd::perfio {
namespace {

constexpr size_t kBufferBytes = 1U << 20;

}  // namespace

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::string& path) {
  Result<Fd> fd = create_private(path);
  if (!fd) return fd.error();
  return std::unique_ptr<OutputFile>(new OutputFile(fd->release(), path));
}

Result<std::unique_ptr<OutputFile>> OutputFile::on_descriptor(int fd, const std::string& name, bool stream) {
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (own < 0) return system_error("cannot write " + name, ErrorCode::write_failed);
  return std::unique_ptr<OutputFile>(new OutputFile(own, name, stream));
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) (void)close();
}

Status OutputFile::write_at(uint64_t offset_bytes, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t got =
        stream_ ? ::write(fd_, bytes.data(), bytes.size()) : ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN && stream_) {
      pollfd room{fd_, POLLOUT, 0};
      (void)::poll(&room, 1, -1);
      continue;
    }
    if (got <= 0)
      return Error{code_of_errno(errno, ErrorCode::write_failed), "cannot write " + path_ + ": " + std::strerror(errno), offset_bytes};
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset_bytes += static_cast<uint64_t>(got);
  }
  return {};
}

Status OutputFile::append(Bytes bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    if (Status status = flush(); !status) return status;
  }
  if (bytes.size() >= kBufferBytes) {
    if (Status status = write_at(written_, bytes); !status) return status;
    written_ += bytes.size();
    return {};
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Status OutputFile::flush() {
  if (Status status = write_at(written_, buffer_); !status) {
    if (!stream_)
      if (::ftruncate(fd_, static_cast<off_t>(written_)) != 0) return status;
    return status;
  }
  written_ += buffer_.size();
  buffer_.clear();
  return {};
}

Status OutputFile::patch(uint64_t offset_bytes, Bytes bytes) {
  if (Status status = flush(); !status) return status;
  return write_at(offset_bytes, bytes);
}

Status OutputFile::cut_at(uint64_t size_bytes) {
  buffer_.clear();
  written_ = size_bytes;
  if (!stream_ && ::ftruncate(fd_, static_cast<off_t>(size_bytes)) != 0) {
    return Error{code_of_errno(errno, ErrorCode::write_failed), "cannot cut " + path_ + ": " + std::strerror(errno), size_bytes};
  }
  return {};
}

std::vector<std::byte> OutputFile::read_back(uint64_t offset_bytes, size_t size_bytes) const {
  std::vector<std::byte> bytes(size_bytes);
  const ssize_t got = ::pread(fd_, bytes.data(), size_bytes, static_cast<off_t>(offset_bytes));
  bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return bytes;
}

Status OutputFile::close() {
  if (fd_ < 0) return {};
  Status status = flush();
  if (::close(std::exchange(fd_, -1)) != 0 && status.ok()) {
    return system_error("cannot close " + path_, ErrorCode::write_failed);
  }
  return status;
}

}  // namespace ptd::perfio
