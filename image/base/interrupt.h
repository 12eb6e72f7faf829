// Interruption of a long operation from within: loops over the bytes of code files call check_interrupt().
#pragma once

#include <functional>

namespace ptd {

/// While it lives, check_interrupt() on this thread calls `check`, unless that is empty. Scopes nest.
class InterruptScope {
 public:
  explicit InterruptScope(const std::function<void()>& check);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  const std::function<void()>* outer_;
};

/// Calls the function of the innermost scope of this thread, which may throw. To be called for each file and each few MiB.
void check_interrupt();

}  // namespace ptd
