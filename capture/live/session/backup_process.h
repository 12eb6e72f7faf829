// BackupProcess: a process that holds the same descriptors and memory as another process, so that they survive its death.
#pragma once

#include <cstdint>
#include <functional>

#include "ptdecode/error.h"

namespace ptd::live {

/// A child that shares descriptors and maps the rings again, so that the kernel keeps them when the recorder is killed. It sleeps in
/// one read() until that happens. Signals of the terminal do not reach it.
class BackupProcess {
 public:
  struct Duties {
    std::function<Status()> adopt;    ///< in the child, at once: map what fork() does not give
    std::function<void()> take_over;  ///< in the child, when the recorder is dead; then the child ends
  };
  /// Forks; returns once the child has mapped the rings. Errors: file_open.
  static Result<BackupProcess> start(const Duties& duties);
  /// Ends it and waits for its end.
  ~BackupProcess();
  BackupProcess(BackupProcess&& other) noexcept;
  BackupProcess& operator=(BackupProcess&& other) noexcept;

  /// Readable when the child has died.
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] int32_t pid() const { return pid_; }

 private:
  BackupProcess() = default;
  int fd_ = -1;
  int32_t pid_ = -1;
};

/// Descriptors 0, 1 and 2 become /dev/null: for a process that outlives its terminal.
void leave_standard_streams();

}  // namespace ptd::live
