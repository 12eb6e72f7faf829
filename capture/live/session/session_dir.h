// The folder of detached sessions, accessible only to its user, with one socket per session.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::live {

/// 1 to 64 letters, digits, '.', '_', '-', the first one no '.' nor '-'. Errors: usage.
[[nodiscard]] Status check_session_name(const std::string& name);

/// The folder of this user's sessions, opened: $XDG_RUNTIME_DIR/ptdecode, /run/user/UID/ptdecode, or /tmp/ptdecode-UID; made with mode
/// 0700. A folder of somebody else, one that others can enter, or a symbolic link in its place is refused. Movable.
class SessionDir {
 public:
  /// Errors: file_open; usage for a folder that is not private.
  static Result<SessionDir> open();
  ~SessionDir();
  SessionDir(SessionDir&& other) noexcept;
  SessionDir& operator=(SessionDir&& other) noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// A name for bind() and connect() that is short however long the folder's is.
  [[nodiscard]] std::string socket_path(const std::string& name) const;
  /// Names of the files in it that could be sessions, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// One process at a time makes or clears away sessions; held until the object goes, or unlock().
  [[nodiscard]] Status lock() const;
  void unlock() const;
  /// Removes a session's file, if it is still the file with this inode (0: whatever it is).
  void remove(const std::string& name, uint64_t inode = 0) const;
  /// The inode of a session's file; 0 if there is none.
  [[nodiscard]] uint64_t inode(const std::string& name) const;
  /// Connects to a session. -1 with errno: ECONNREFUSED means that nobody holds it any more, EAGAIN that it took nobody in for so long.
  [[nodiscard]] int connect_to(const std::string& name, std::chrono::seconds patience) const;
  /// A socket that listens under the name, mode 0600. -1 with errno.
  [[nodiscard]] int listen_as(const std::string& name) const;

 private:
  SessionDir(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
};

}  // namespace ptd::live
