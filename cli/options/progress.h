// Progress on standard error: bytes done, percent, rate, time left. Silent unless standard error is a terminal.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace ptd::cli {

/// Any thread may call add(); the line is redrawn at most five times a second.
class Progress {
 public:
  /// `wanted` false: never shows anything.
  Progress(std::string what, bool wanted);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_total(uint64_t total_bytes) { total_ = total_bytes; }
  void add(uint64_t bytes);
  void set(uint64_t done_bytes);
  /// Bytes done of all, 0 to 1; 0 if nothing is known.
  [[nodiscard]] double share() const;
  /// Removes the line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw();

  const std::string what_;
  const bool shown_;
  const Clock::time_point start_;
  std::atomic<uint64_t> done_{0}, total_{0};
  std::atomic<int64_t> next_draw_ms_{500};
  std::mutex mutex_;
  bool drawn_ = false;
};

}  // namespace ptd::cli
