// Safe file operations of the stash: uses only directories and files that no other user can have created.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "image/base/fd.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::stash {

using ptd::Fd;

inline constexpr size_t kFolderDigits = 2;  ///< of a key, which name the folder of its entry
inline constexpr uint32_t kLockWaitMs = 60'000;

/// A directory, by descriptor: all operations act on this directory even if its path changes. Names have no slash, and links are never
/// followed. Not thread-safe.
class Dir {
 public:
  Dir() = default;
  /// Opens the top directory of a stash; with a `create_mode` creates it and (private to this user) its parents. Refuses with file_open:
  /// another user's directory, one that others may write to, a link of another user. `owner_root`: also accepts root's, for reading.
  static Result<Dir> open_top(const std::string& path, unsigned create_mode, bool owner_root);
  /// Opens a directory in this one; with `create` creates it. Refuses as above, and with
  /// not_regular_file every link and what is no directory.
  [[nodiscard]] Result<Dir> sub(const std::string& name, bool create) const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool ok() const { return fd_.ok(); }
  /// Returns the names in it, without "." and "..", sorted; at most `limit`.
  [[nodiscard]] std::vector<std::string> names(size_t limit = 1U << 22) const;
  /// Stats a name without following links; returns false if it does not exist.
  [[nodiscard]] bool stat(const std::string& name, struct stat& info) const;
  /// Returns not_regular_file for a name that is neither a regular file nor absent, without opening it.
  [[nodiscard]] Status check_file(const std::string& name) const;
  /// Opens a regular file of ours (or root's) for reading. Errors: file_open; not_regular_file for links, too.
  [[nodiscard]] Result<Fd> open_file(const std::string& name) const;
  /// Reads a small file. Errors: file_open; file_format if it is longer than `limit_bytes`.
  [[nodiscard]] Result<std::string> read_file(const std::string& name, uint64_t limit_bytes) const;

  /// Writes a file atomically: it appears under its name only when complete and on disk, even after a kill or with a full disk.
  /// `write` gets the descriptor. `replace`: replaces an existing file; otherwise the existing file stays, which is not an error.
  [[nodiscard]] Status publish(const std::string& name, unsigned mode, bool replace, const std::function<Status(int fd)>& write) const;
  [[nodiscard]] Status publish(const std::string& name, unsigned mode, bool replace, Bytes content) const;
  /// Creates a hard link in `to` to a file in this directory. An existing link, or too many links, is not an error.
  [[nodiscard]] Status link(const std::string& name, const Dir& to, const std::string& new_name) const;
  /// Removes a file, or a directory with its content; returns false if it still exists.
  bool remove(const std::string& name) const;
  /// Syncs the directory, so that its names are durable.
  void sync() const;

 private:
  Dir(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

/// Writes all bytes. Errors: file_open, also if the disk is full.
[[nodiscard]] Status write_all(int fd, Bytes bytes);

/// Advisory lock on a file or directory, until destruction or the end of the process.
class Lock {
 public:
  Lock() = default;
  /// Waits at most `wait_ms`; not ok() if another process still holds the lock.
  Lock(int fd, bool exclusive, uint32_t wait_ms);
  ~Lock();
  Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Lock& operator=(Lock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  [[nodiscard]] bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace ptd::stash
