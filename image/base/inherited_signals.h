// Signals that were ignored when this process began: programs that it starts are to ignore them too. Threads that inherit no signals.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace ptd {

/// Stores which signals are ignored now. Called first in main(), before this program ignores any itself.
void note_inherited_signals();
/// Returns whether note_inherited_signals() found the signal ignored.
[[nodiscard]] bool was_ignored(int number);

/// A thread that is started during its lifetime gets none of this process's signals.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace ptd
