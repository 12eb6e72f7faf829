// Workload: a program that is started for a recording and waits until everything is ready.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::live {

/// A child process. If its parent dies before start(), it ends without having run anything; after that it lives on by itself.
class Workload {
 public:
  /// Forks. The child waits. Errors: file_open.
  static Result<Workload> prepare(const std::vector<std::string>& command);
  ~Workload();
  Workload(Workload&& other) noexcept;
  Workload& operator=(Workload&& other) noexcept;

  /// Lets it exec. Errors: file_open if there is no such program, with the name.
  Status start();
  /// In another child of this process, which has nothing to do with it: lets go of its descriptors.
  void forget();
  [[nodiscard]] int32_t pid() const { return pid_; }
  /// Readable once it has ended; -1 where the kernel has no pidfd (before Linux 5.3).
  [[nodiscard]] int fd() const { return pid_fd_; }
  /// Its exit status as a shell gives it (128 + signal), if it has ended; -1 else. Waits at most so long (without a pidfd not at all).
  [[nodiscard]] int ended(int patience_ms = 0);

 private:
  Workload() = default;
  std::string program_;
  int32_t pid_ = -1;
  int pid_fd_ = -1, go_ = -1, failure_ = -1, status_ = -1;
};

}  // namespace ptd::live
