// KernelChanges: has the kernel change its own code while the program runs.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "capture/emulate/shared/guest_config.h"

namespace ptd::emulate::guest {

/// Starts processes that call the kernel until the machine ends, with a pause after each turn.
void start_load(uint32_t processes, uint32_t pause_ms);

/// Makes the changes of `events` on a thread of its own, in turn, from each cpu in turn. Each change goes through the kernel's user
/// interface, so its cost and its order are those of the real thing. Not thread-safe.
class KernelChanges {
 public:
  /// Prepares what is slow and need not be traced: names looked up, buffers allocated.
  explicit KernelChanges(std::vector<KernelEvent> events);
  ~KernelChanges() { finish(); }
  KernelChanges(const KernelChanges&) = delete;
  KernelChanges& operator=(const KernelChanges&) = delete;

  void start();
  /// Waits until every event with a count was made so often, and ends the others.
  void finish();

 private:
  void run();
  std::vector<KernelEvent> events_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace ptd::emulate::guest
