// A file that is written sequentially with a buffer of fixed size and patched at the end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::perfio {

class OutputFile {
 public:
  /// See create_private().
  static Result<std::unique_ptr<OutputFile>> create(const std::string& path);
  /// Writes to a duplicate of an open descriptor, which the caller keeps: a file, from its start; or a stream (a pipe), sequentially
  /// only.
  static Result<std::unique_ptr<OutputFile>> on_descriptor(int fd, const std::string& name, bool stream);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Appends; large data is written without a copy.
  [[nodiscard]] Status append(Bytes bytes);
  /// Overwrites bytes that were already appended.
  [[nodiscard]] Status patch(uint64_t offset_bytes, Bytes bytes);
  [[nodiscard]] Status flush();
  /// Flushes and closes; reports errors of the operating system at the latest here.
  [[nodiscard]] Status close();
  /// Discards the buffer, truncates the file there and continues after it.
  [[nodiscard]] Status cut_at(uint64_t size_bytes);
  /// Reads back flushed data; fewer bytes at the end.
  [[nodiscard]] std::vector<std::byte> read_back(uint64_t offset_bytes, size_t size_bytes) const;
  [[nodiscard]] uint64_t size_bytes() const { return written_ + buffer_.size(); }

 private:
  OutputFile(int fd, std::string path, bool stream = false) : fd_(fd), path_(std::move(path)), stream_(stream) {}
  [[nodiscard]] Status write_at(uint64_t offset_bytes, Bytes bytes);

  int fd_;
  std::string path_;
  bool stream_;  // no place can be written twice
  std::vector<std::byte> buffer_;
  uint64_t written_ = 0;
};

}  // namespace ptd::perfio
