// Progress on standard error: see progress.h.
#include "cli/options/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/text/output.h"

namespace ptd::cli {

Progress::Progress(std::string what, bool wanted)
    : what_(std::move(what)), shown_(wanted && is_terminal(STDERR_FILENO)), start_(Clock::now()) {}

Progress::~Progress() { finish(); }

void Progress::add(uint64_t bytes) {
  done_ += bytes;
  if (shown_) draw();
}

void Progress::set(uint64_t done_bytes) {
  done_ = done_bytes;
  if (shown_) draw();
}

double Progress::share() const {
  const uint64_t total = total_;
  return total == 0 ? 0 : std::min(1.0, static_cast<double>(done_) / static_cast<double>(total));
}

void Progress::draw() {
  const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_).count();
  int64_t due_ms = next_draw_ms_;
  if (now_ms < due_ms || !next_draw_ms_.compare_exchange_strong(due_ms, now_ms + 200)) return;
  const std::lock_guard lock(mutex_);
  const double seconds = static_cast<double>(now_ms) / 1000;
  const double done = static_cast<double>(done_), total = static_cast<double>(total_);
  const double rate = done / (seconds > 0 ? seconds : 1);
  std::string line = fmt::format("\r\x1b[K{}: {:.1f} MB", what_, done / 1e6);
  if (total > 0) line += fmt::format(" of {:.1f}, {:.0f} %", total / 1e6, 100 * done / total);
  line += fmt::format(", {:.1f} MB/s", rate / 1e6);
  if (total > done && rate > 0) line += fmt::format(", {:.0f} s left", (total - done) / rate);
  std::fputs(line.c_str(), stderr);
  drawn_ = true;
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

}  // namespace ptd::cli
