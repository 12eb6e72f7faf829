// StepRunner: runs the commands of a build or download one after the other, with a log.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::emulators {

/// What happens during the steps. Each may be empty.
struct StepWatch {
  std::function<void(const std::string&)> on_step;               ///< a step begins
  std::function<void(uint64_t done, uint64_t all)> on_progress;  ///< of the longest step
  std::function<bool()> stop;                                    ///< once it returns true, the step ends; asked several times a second
};

class StepRunner {
 public:
  StepRunner(StepWatch watch, const std::string& log) : watch_(std::move(watch)), log_path_(log), log_(log) {}
  [[nodiscard]] bool good() const { return static_cast<bool>(log_); }
  [[nodiscard]] const std::string& log_path() const { return log_path_; }
  /// Runs a command in `folder`; `what` "": it belongs to the step before. `text`, if not null, gets the first MiB of its output. Errors:
  /// start_failed with the command's own complaint, cancelled.
  Status run(const std::string& what, const std::vector<std::string>& words, const std::string& folder, std::string* text = nullptr);

 private:
  void follow(std::string_view text);
  void see_line();
  const StepWatch watch_;
  const std::string log_path_;
  std::ofstream log_;
  std::string line_, complaint_;
};

/// Of a build's output: sets `done` and `all` to the numbers in "[3/120] ", as ninja prints them. Returns whether the line has them.
[[nodiscard]] bool parse_progress(std::string_view line, uint64_t& done, uint64_t& all);
/// Whether a line of output states an error, as apt, dpkg-source, meson and compilers write it.
[[nodiscard]] bool is_complaint(std::string_view line);

}  // namespace ptd::emulators
