// A read-only mapping of a file, or of a pipe spooled into an unlinked temporary file.
#pragma once

#include <memory>
#include <string>

#include "image/base/regular_file.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::perfio {

/// Of a large file read record by record, each touch of a page would have the system read megabytes around it (as much as the device's
/// read-ahead), though the trace between the records is passed over. While one of these lives only what at() comes to is read, a window
/// ahead.
class ScatteredRead {
 public:
  /// `mapping` must outlive it; a small one, or other memory, is left alone.
  explicit ScatteredRead(Bytes mapping);
  ~ScatteredRead();
  ScatteredRead(const ScatteredRead&) = delete;
  ScatteredRead& operator=(const ScatteredRead&) = delete;

 private:
  Bytes mapping_;
};
/// Makes the system read the window at `offset_bytes` of a large mapping; returns the end of the window.
uint64_t read_window(Bytes mapping, uint64_t offset_bytes);
inline constexpr uint64_t kScatteredBytes = 64ULL << 20;  ///< smaller mappings are read as they come

/// Maps without reading: pages come in on touch, so a recording of any size costs address space only.
/// Limitation: if another program truncates the file while it is mapped, an access raises SIGBUS.
class MappedFile {
 public:
  /// "-" is standard input; if that is a pipe, its copy replaces it and can be reopened. Input that cannot be mapped (pipe, socket, FIFO)
  /// is spooled to $TMPDIR (default /tmp); only its first bytes if it does not begin like a recording.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  /// Maps an open regular file of a recording's folder. Errors: file_open.
  static Result<std::unique_ptr<MappedFile>> open(const RegularFile& file, const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] Bytes bytes() const { return bytes_; }

 private:
  MappedFile() = default;
  static Result<std::unique_ptr<MappedFile>> map(int fd, const std::string& path);
  Bytes bytes_;
};

}  // namespace ptd::perfio
