// Interruption of a long operation from within: loops over the bytes of code files call check_interrupt().
#pragma once

#include <functional>

namespace ptd {

/// During its lifetime, check_interrupt() on this thread calls `check`, unless that is empty. Scopes nest.
class InterruptScope {
 public:
  explicit InterruptScope(const std::function<void()>& check);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  const std::function<void()>* outer_;
};

/// Calls the function of the innermost scope of this thread, which may throw. Must be called for each file and every few MiB.
void check_interrupt();

}  // namespace ptd
