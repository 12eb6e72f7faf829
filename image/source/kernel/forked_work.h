// ForkedWork: work that may crash, in a copy of this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "image/base/fd.h"
#include "ptdecode/error.h"

namespace ptd {

/// A forked process that does work which may crash or never end, and sends the result through a pipe. For libraries that trust their input.
/// The destructor kills the process and waits for it, and so does the kernel if the starting thread ends. Not thread-safe.
/// Waits for this process only. If the program ignores SIGCHLD or waits for all its children, the signal of a crash is not known.
class ForkedWork {
 public:
  struct Limits {
    std::chrono::seconds silence;  ///< time without data
    uint64_t cpu_seconds;          ///< processor time of the process
    uint64_t memory_bytes;         ///< address space, in addition to the parent's
  };
  struct End {
    bool crashed = false;
    std::string how;  ///< for example "was ended by signal 11"
  };

  /// Starts `work` with the descriptor to write to. It runs without the other threads: it must neither take locks that these may hold, nor
  /// load libraries. Its signals are blocked, and what it writes to the standard error is discarded. Errors: resources, start_failed.
  static Result<std::unique_ptr<ForkedWork>> start(const std::string& name, const Limits& limits,
                                                   const std::function<void(int output)>& work);
  ~ForkedWork();
  ForkedWork(const ForkedWork&) = delete;
  ForkedWork& operator=(const ForkedWork&) = delete;

  /// Fills `bytes`. Returns false if the process ended before, or was silent for too long. Calls check_interrupt().
  [[nodiscard]] bool read(std::span<std::byte> bytes);
  /// Ends the process and returns how it ended. For use after read() returned false.
  [[nodiscard]] End stop();

 private:
  ForkedWork(pid_t pid, Fd output, std::chrono::seconds silence) : pid_(pid), output_(std::move(output)), silence_(silence) {}
  bool fill();
  void reap(int flags);

  pid_t pid_;  // 0 after it was waited for
  Fd output_;
  std::chrono::seconds silence_;
  std::optional<int> status_;  // as waitpid() returns it; empty if another part of the program waited for the process
  bool is_silent_ = false;
  std::vector<std::byte> buffer_;
  size_t used_ = 0;  // bytes of the buffer
};

}  // namespace ptd
