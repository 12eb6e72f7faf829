// Workload: a program that is started for a recording and waits until everything is ready.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::live {

/// A child process. If its parent dies before start(), it exits without running the program; after that it is independent.
class Workload {
 public:
  /// Forks. The child waits. `variable`: NAME=VALUE for its environment, unless it is set there. Errors: file_open.
  static Result<Workload> prepare(const std::vector<std::string>& command, const std::string& variable = {});
  ~Workload();
  Workload(Workload&& other) noexcept;
  Workload& operator=(Workload&& other) noexcept;

  /// Lets it exec. Errors: not_found if the program or its interpreter does not exist; start_failed, both with the name.
  Status start();
  /// Closes its descriptors, in another child of this process that does not use it.
  void forget();
  [[nodiscard]] int32_t pid() const { return pid_; }
  /// Returns a descriptor that is readable once it has ended; -1 if the kernel has no pidfd (before Linux 5.3).
  [[nodiscard]] int fd() const { return pid_fd_; }
  /// Returns its exit status as in a shell (128 + signal), -1 if it has not ended. Waits at most this long (without a pidfd not at all).
  [[nodiscard]] int ended(int patience_ms = 0);

 private:
  Workload() = default;
  std::string program_;
  int32_t pid_ = -1;
  int pid_fd_ = -1, go_ = -1, failure_ = -1, status_ = -1;
};

}  // namespace ptd::live
