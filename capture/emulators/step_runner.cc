// Runs commands with a log.
#include "capture/emulators/step_runner.h"

#include "capture/emulators/run_command.h"

namespace ptd::emulators {

void StepRunner::follow(std::string_view text) {
  log_ << text << std::flush;
  constexpr size_t kMostLine = 256;
  for (const char c : text) {
    if (c != '\n' && c != '\r') {
      if (line_.size() < kMostLine) line_ += c;
      continue;
    }
    see_line();
    line_.clear();
  }
}

void StepRunner::see_line() {
  uint64_t done = 0, all = 0;
  if (watch_.on_progress && parse_progress(line_, done, all)) watch_.on_progress(done, all);
  if (complaint_.empty() && is_complaint(line_)) complaint_ = line_;
}

Status StepRunner::run(const std::string& what, const std::vector<std::string>& words, const std::string& folder, std::string* text) {
  if (watch_.on_step && !what.empty()) watch_.on_step(what);
  log_ << "== " << what << ":";
  for (const std::string& word : words) log_ << ' ' << word;
  log_ << std::endl;
  complaint_.clear();
  CommandOptions options;
  options.folder = folder;
  options.most_bytes = text != nullptr ? 1U << 20 : 0;
  options.see = [this](std::string_view seen) { follow(seen); };
  options.stop = watch_.stop;
  CommandOutcome outcome = run_command(words, options);
  if (text != nullptr) *text = std::move(outcome.text);
  if (outcome.stopped) return Error{ErrorCode::cancelled, what + ": stopped", 0};
  if (outcome.status == 0) return {};
  return Error{ErrorCode::start_failed,
               what + ": " + words.front() + " failed (exit status " + std::to_string(outcome.status) + ")" +
                   (complaint_.empty() ? "" : ": " + complaint_) + "; its output is in " + log_path_,
               0};
}

bool parse_progress(std::string_view line, uint64_t& done, uint64_t& all) {
  constexpr size_t kMostDigits = 9;
  const auto number = [&](size_t begin, size_t end, uint64_t& value) {
    if (begin >= end || end - begin > kMostDigits) return false;
    value = 0;
    for (const char c : line.substr(begin, end - begin)) {
      if (c < '0' || c > '9') return false;
      value = value * 10 + static_cast<uint64_t>(c - '0');
    }
    return true;
  };
  const size_t slash = line.find('/'), end = line.find(']');
  if (!line.starts_with('[') || slash == std::string_view::npos || end == std::string_view::npos || end < slash) return false;
  return number(1, slash, done) && number(slash + 1, end, all) && all != 0 && done <= all;
}

bool is_complaint(std::string_view line) {
  return line.starts_with("E: ") || line.find("error: ") != std::string_view::npos || line.find("ERROR: ") != std::string_view::npos;
}

}  // namespace ptd::emulators
