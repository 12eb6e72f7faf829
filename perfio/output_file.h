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
  /// Writes to a descriptor that is open already, which is duplicated and stays the caller's: a file, from its start; or a stream (a pipe),
  /// front to back only.
  static Result<std::unique_ptr<OutputFile>> on_descriptor(int fd, const std::string& name, bool stream);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Appends; large pieces go to the file without a copy.
  [[nodiscard]] Status append(Bytes bytes);
  /// Overwrites bytes that were appended before.
  [[nodiscard]] Status patch(uint64_t offset_bytes, Bytes bytes);
  [[nodiscard]] Status flush();
  /// Flushes and closes; errors of the operating system surface here at the latest.
  [[nodiscard]] Status close();
  /// Forgets what is in the buffer, cuts the file there and goes on behind it.
  [[nodiscard]] Status cut_at(uint64_t size_bytes);
  /// Reads back what was flushed; fewer bytes at the end.
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
