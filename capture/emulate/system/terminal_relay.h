// TerminalRelay: passes standard input, output, error output and signals between this process and the program in the emulated machine.
#pragma once

#include <termios.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "capture/emulate/shared/guest_channel.h"

namespace ptd::emulate {

struct RelayOutcome {
  std::optional<int> exit_status;  ///< of the program
  bool finished = false;           ///< the machine left a complete recording
  bool given_up = false;           ///< the user ended the machine
  std::string failure;             ///< what the machine said about why there is no recording
  std::vector<std::string> messages;
  using Time = std::chrono::steady_clock::time_point;
  Time started, ended;  ///< the program
};

/// While it exists, SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGWINCH of this process go to the program. A terminal at standard input is in raw
/// mode from the start of the program to its end, so that the keys reach the program's own terminal. One at a time.
class TerminalRelay {
 public:
  explicit TerminalRelay(int fd);
  ~TerminalRelay();
  TerminalRelay(const TerminalRelay&) = delete;
  TerminalRelay& operator=(const TerminalRelay&) = delete;

  /// Returns once the machine has finished, failed or closed the channel, or the user gave up.
  RelayOutcome run();

 private:
  void on_frame(GuestFrame kind, std::string_view payload);
  void pass_signals();
  void pass_input();
  void set_raw(bool on);

  GuestChannel channel_;
  int fd_;
  RelayOutcome outcome_;
  size_t input_on_way_ = 0;
  unsigned requests_to_end_ = 0;
  bool input_ended_ = false, raw_ = false;
  termios before_{};
};

}  // namespace ptd::emulate
