// The folder of detached sessions, accessible only to its user, with one socket per session.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::live {

/// Checks a name: 1 to 64 letters, digits, '.', '_', '-', not starting with '.' or '-'. Errors: usage.
[[nodiscard]] Status check_session_name(const std::string& name);

/// The folder of this user's sessions, opened: $XDG_RUNTIME_DIR/ptdecode, /run/user/UID/ptdecode, or /tmp/ptdecode-UID; created with mode
/// 0700. Another user's folder, one that others can enter, or a symbolic link is refused. Movable.
class SessionDir {
 public:
  /// Errors: file_open; usage for a folder that is not private.
  static Result<SessionDir> open();
  ~SessionDir();
  SessionDir(SessionDir&& other) noexcept;
  SessionDir& operator=(SessionDir&& other) noexcept;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns a name for bind() and connect() that is short even if the folder's name is long.
  [[nodiscard]] std::string socket_path(const std::string& name) const;
  /// Returns the names of the sockets in it that could be sessions, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Locks the creation and removal of sessions, until unlock() or destruction.
  [[nodiscard]] Status lock() const;
  void unlock() const;
  /// Removes a session's file, if it is still the file with this inode (0: any). Never removes what is no socket of this user.
  void remove(const std::string& name, uint64_t inode = 0) const;
  /// Returns the inode of a session's file; 0 if there is none, or if it is no socket of this user.
  [[nodiscard]] uint64_t inode(const std::string& name) const;
  /// Connects to a session. Returns -1 with errno: ECONNREFUSED if the session is dead, EAGAIN if it did not accept in time.
  [[nodiscard]] int connect_to(const std::string& name, std::chrono::seconds patience) const;
  /// Returns a socket that listens under the name, mode 0600; -1 with errno.
  [[nodiscard]] int listen_as(const std::string& name) const;

 private:
  SessionDir(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
};

}  // namespace ptd::live
