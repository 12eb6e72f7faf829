// GuestProgram: the recorded program in the emulated machine, and the way of its input and output to the host.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>

#include "capture/emulate/shared/guest_channel.h"
#include "capture/emulate/shared/guest_config.h"

namespace ptd::emulate::guest {

/// Runs one program. Streams that are the host's terminal are one pseudo-terminal here, the others are pipes.
class GuestProgram {
 public:
  GuestProgram(const GuestConfig& config, GuestChannel& channel, int channel_fd)
      : config_(config), channel_(channel), channel_fd_(channel_fd) {}

  /// Starts the program; `before_exec` is called in its process right before exec.
  bool start(const std::function<void()>& before_exec);
  /// Passes bytes and signals on until the program has ended; `on_end` is called at once then. Returns its exit status, 128 + signal if one
  /// ended it.
  int run(const std::function<void()>& on_end);

 private:
  struct Stream {
    int fd = -1;
    GuestFrame kind = GuestFrame::output;
  };
  bool open_streams(int (&inside)[3]);
  void become_program(const int (&inside)[3], const std::function<void()>& before_exec) const;
  bool pass_output(Stream& stream);
  void on_frame(GuestFrame kind, std::string_view payload);
  void feed();
  [[nodiscard]] bool ended();

  const GuestConfig& config_;
  GuestChannel& channel_;
  int channel_fd_;
  pid_t child_ = -1;
  int status_ = 0, terminal_ = -1, input_ = -1;
  bool input_ended_ = false, host_gone_ = false;
  std::string waiting_;  ///< input that the program did not take yet
  Stream streams_[2];    ///< output, error output
};

}  // namespace ptd::emulate::guest
