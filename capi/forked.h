// Forked children, which have no threads of the library.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace ptd::capi {

inline constexpr const char* kForkedSentence = "the threads that decode are those of the process that this one was forked from";

/// Returns how often a process was forked from one that had called this, up to this process. Costs a load.
inline uint32_t fork_count() {
  static std::atomic<uint32_t> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return count.load(std::memory_order_relaxed);
}

/// The process in which it was made.
class Origin {
 public:
  /// Whether this process was forked from that one.
  [[nodiscard]] bool is_forked() const { return fork_count() != forks_; }

 private:
  uint32_t forks_ = fork_count();
};

}  // namespace ptd::capi
