// Interruption: see interrupt.h.
#include "image/base/interrupt.h"

namespace ptd {

namespace {

thread_local const std::function<void()>* innermost = nullptr;

}  // namespace

InterruptScope::InterruptScope(const std::function<void()>& check) : outer_(innermost) { innermost = &check; }
InterruptScope::~InterruptScope() { innermost = outer_; }

void check_interrupt() {
  if (innermost != nullptr && *innermost) (*innermost)();
}

}  // namespace ptd
