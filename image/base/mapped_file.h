// MappedFile: the bytes of a file, mapped read-only and shared.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "image/base/regular_file.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

/// Device and inode by which a record of a mapping identifies its file; all 0 if the record does not.
struct FileId {
  uint32_t maj = 0, min = 0;  ///< of the device; 0:0 if not recorded
  uint64_t inode = 0;         ///< 0 if not recorded
  uint64_t generation = 0;    ///< of the inode number, which is used again; 0 if not known
};

/// A regular file mapped privately and read-only. Immutable; any number of threads may read. The bytes live as long as the object.
/// If another process truncates the file while it is mapped, reads past the new end give zero bytes (shrunk_files.h).
class MappedFile {
 public:
  /// Errors: file_open (absent, not regular, refused). An empty file maps to no bytes.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  /// Same for a file from open_recorded() or open_beneath(); `path` names it in messages.
  static Result<std::shared_ptr<const MappedFile>> open(const RegularFile& file, const std::string& path);
  /// Same for an open file; `path` is its name. The caller keeps the descriptor.
  static Result<std::shared_ptr<const MappedFile>> open(int fd, const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns when the content was last written, in nanoseconds since the epoch. The owner can set it to any time.
  [[nodiscard]] int64_t modified_ns() const { return modified_ns_; }
  /// Returns when content, name or attributes last changed, in nanoseconds since the epoch. Only the kernel sets it.
  [[nodiscard]] int64_t changed_ns() const { return changed_ns_; }
  /// Returns device and inode, which are the same for every spelling of the path.
  [[nodiscard]] std::pair<uint64_t, uint64_t> identity() const { return identity_; }
  /// Returns the numbers under which this process's memory map (/proc/self/maps) lists the file. Records of mappings have the same numbers;
  /// stat() returns others on file systems with several volumes (btrfs, overlayfs). All 0 if the file is empty or the map cannot be read.
  [[nodiscard]] FileId mapped_id() const;

 private:
  MappedFile() = default;
  Bytes bytes_;
  std::string path_;
  int64_t modified_ns_ = 0, changed_ns_ = 0;
  std::pair<uint64_t, uint64_t> identity_;
};

/// Returns device and inode of the file at a path, as MappedFile::identity(), without opening it; nothing if there is none.
[[nodiscard]] std::optional<std::pair<uint64_t, uint64_t>> file_identity(const std::string& path);

/// Reads a text file, at most `limit_bytes`; also files without a size (procfs). Empty if it cannot be read.
[[nodiscard]] std::string read_text_file(const std::string& path, uint64_t limit_bytes);

/// Returns true if `path` is a regular file or a link to one.
[[nodiscard]] bool is_regular_file(const std::string& path);

/// Returns the little-endian number at `offset` of a file's bytes; 0 if these end before it does.
template <class T>
[[nodiscard]] T number_at(Bytes bytes, uint64_t offset) {
  T value{};
  if (offset <= bytes.size() && sizeof value <= bytes.size() - offset) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace ptd
