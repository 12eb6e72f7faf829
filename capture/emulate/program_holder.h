// ProgramHolder: a second process between the recorder and the program, so that either of the two can be killed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "ptdecode/error.h"

namespace ptd::emulate {

/// The holder starts the program, waits for it and all that it starts, and reports to the recorder. If the recorder is killed, the holder
/// completes the recording; if the holder is killed, the recorder waits itself. Signals of the terminal and of the recorder's process group
/// do not reach the holder.
class ProgramHolder {
 public:
  struct Duties {
    std::function<void()> become_program;  ///< in the program's process; returns only if that fails
    std::function<void()> ended;           ///< when the program itself has ended, in the process that waits for it
    std::function<void()> complete;        ///< in the holder, if the recorder is gone when the program has ended
  };
  /// Errors: file_open.
  static Result<std::unique_ptr<ProgramHolder>> start(const Duties& duties);
  /// The recording is complete, or cannot be made: ends the holder.
  ~ProgramHolder();
  ProgramHolder(const ProgramHolder&) = delete;
  ProgramHolder& operator=(const ProgramHolder&) = delete;

  [[nodiscard]] pid_t program() const { return program_; }
  struct Progress {
    std::function<void()> program_ended;      ///< called once
    std::function<void(size_t)> rest_is_running;  ///< called once, a second later, if so many processes that the program started still run
  };
  /// Waits until the program and all that it started have ended; its exit status, 128 + signal if one ended it.
  int wait(const Progress& progress);
  /// After the program has ended: asks what it started to end (SIGTERM), the second time without a choice (SIGKILL). For signal handlers.
  static void end_rest();

 private:
  ProgramHolder() = default;
  std::function<void()> ended_;
  int fd_ = -1;
  pid_t holder_ = -1, program_ = -1;
};

}  // namespace ptd::emulate
