// Runs a command and reads what it prints.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ptd::emulators {

struct CommandOutcome {
  int status = -1;         ///< exit status; 128 + signal; 127 if it could not be started
  bool timed_out = false;  ///< it was killed after `most_time`
  bool stopped = false;    ///< it was killed because `stop` requested it
  std::string text;        ///< the first bytes of standard output and error
};

struct CommandOptions {
  std::string folder;                         ///< the working directory; "": this process's own
  std::chrono::milliseconds most_time{0};     ///< then the command and its children are killed; 0: no limit
  size_t most_bytes = 64U << 10;              ///< kept of its output; the rest is read and dropped
  std::function<void(std::string_view)> see;  ///< gets all output as it arrives
  /// Once it returns true, the command and its children are killed; asked several times a second.
  std::function<bool()> stop;
};

/// Runs a program of PATH, or a path, with standard input from /dev/null. If this process ends, so does the command.
[[nodiscard]] CommandOutcome run_command(const std::vector<std::string>& words, const CommandOptions& options);

}  // namespace ptd::emulators
