// MappedFile: a file's bytes, mapped read-only and shared by everyone who views them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "image/base/regular_file.h"
#include "ptdecode/error.h"
#include "ptdecode/timeline.h"
#include "ptdecode/types.h"

namespace ptd {

/// Device and inode by which a record of a mapping identifies its file; all 0 if the record does not.
struct FileId {
  uint32_t maj = 0, min = 0;  ///< of the device; 0:0 if not recorded
  uint64_t inode = 0;         ///< 0 if not recorded
};

/// A regular file mapped privately and read-only. Immutable; any number of threads may read. The bytes live as long as the object.
/// A file that another process cuts short while it is mapped makes reads beyond the cut fault, as with any mapping.
class MappedFile {
 public:
  /// Errors: file_open (absent, not regular, refused). An empty file maps to no bytes.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  /// The same of what open_recorded() or open_beneath() gave; `path` names it in messages.
  static Result<std::shared_ptr<const MappedFile>> open(const RegularFile& file, const std::string& path);
  /// The same of a file that is open; `path` is what it is called. The descriptor stays the caller's.
  static Result<std::shared_ptr<const MappedFile>> open(int fd, const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// When the content was last written, in nanoseconds since the epoch. Its owner can set it to any time.
  [[nodiscard]] int64_t modified_ns() const { return modified_ns_; }
  /// When content, name or attributes last changed, in nanoseconds since the epoch. Only the kernel sets it.
  [[nodiscard]] int64_t changed_ns() const { return changed_ns_; }
  /// Device and inode: the same for every spelling of the path.
  [[nodiscard]] std::pair<uint64_t, uint64_t> identity() const { return identity_; }
  /// The numbers under which this process's memory map (/proc/self/maps) lists the file. Records of mappings have the same numbers, and
  /// stat() has others on file systems of several volumes (btrfs, overlayfs). All 0 if the file is empty or the map cannot be read.
  [[nodiscard]] FileId mapped_id() const;

 private:
  MappedFile() = default;
  Bytes bytes_;
  std::string path_;
  int64_t modified_ns_ = 0, changed_ns_ = 0;
  std::pair<uint64_t, uint64_t> identity_;
};

/// The part [offset, offset + size) of a file as code bytes that keep the file mapped; cut at the file's end, empty beyond it.
[[nodiscard]] CodeBytes piece_of(const std::shared_ptr<const MappedFile>& file, uint64_t offset_bytes, uint64_t size_bytes);

/// Code bytes that own a copy.
[[nodiscard]] CodeBytes own_bytes(Bytes bytes);

/// A run of memory with its bytes, as copies of memory give it.
struct MemoryRange {
  Ip ip;
  CodeBytes code;
};

/// The whole of a text file, at most `limit_bytes` of it; also reads files without a size (procfs). Empty if it cannot be read.
[[nodiscard]] std::string read_text_file(const std::string& path, uint64_t limit_bytes);

/// True if a regular file (or a link to one) is at `path`.
[[nodiscard]] bool is_regular_file(const std::string& path);

}  // namespace ptd
