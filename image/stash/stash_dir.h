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

/// A failed system call: "WHAT: reason".
[[nodiscard]] Error system_error(const std::string& what, int number);

/// A directory, by descriptor: what is done in it stays in it, whatever the path leads to by then. Names have no slash and are never
/// followed if they are links. One thread.
class Dir {
 public:
  Dir() = default;
  /// Opens the top directory of a stash; with a `create_mode` makes it and (for this user alone) those above. Refused, as file_open:
  /// another user's, one that others may write to, a link that another user made. `owner_root`: root's is taken too, for reading.
  static Result<Dir> open_top(const std::string& path, unsigned create_mode, bool owner_root);
  /// A directory in this one; with `create` it is made. Refused as above; a link is refused whoever made it.
  [[nodiscard]] Result<Dir> sub(const std::string& name, bool create) const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool ok() const { return fd_.ok(); }
  /// Names in it, without "." and "..", sorted; at most `limit`.
  [[nodiscard]] std::vector<std::string> names(size_t limit = 1U << 22) const;
  /// What stands under a name, links not followed; false if nothing does.
  [[nodiscard]] bool stat(const std::string& name, struct stat& info) const;
  /// Opens a regular file of ours (or root's) for reading. Errors: file_open.
  [[nodiscard]] Result<Fd> open_file(const std::string& name) const;
  /// The whole of a small file. Errors: file_open; file_format if it is longer than `limit_bytes`.
  [[nodiscard]] Result<std::string> read_file(const std::string& name, uint64_t limit_bytes) const;

  /// Writes a file that appears under its name when it is whole and on the disk, or not at all: also if this process is killed or the disk
  /// is full. `write` is given the descriptor. `replace`: an older file gives way; else it stays, and that is no error.
  [[nodiscard]] Status publish(const std::string& name, unsigned mode, bool replace, const std::function<Status(int fd)>& write) const;
  [[nodiscard]] Status publish(const std::string& name, unsigned mode, bool replace, Bytes content) const;
  /// A second name, in `to`, for a file in this directory. That it is there already is no error, nor that a file has all the names it can.
  [[nodiscard]] Status link(const std::string& name, const Dir& to, const std::string& new_name) const;
  /// Removes a file, or a directory with all that is in it; false if it is still there.
  bool remove(const std::string& name) const;
  /// Makes names durable.
  void sync() const;

 private:
  Dir(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;
};

/// Writes all of it. Errors: file_open, also for a disk that is full.
[[nodiscard]] Status write_all(int fd, Bytes bytes);

/// Advisory lock on a file or directory, until this object goes or the process dies, however.
class Lock {
 public:
  Lock() = default;
  /// Waits at most `wait_ms`; not ok() if someone else has it by then.
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
