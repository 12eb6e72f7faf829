// TraceRevival: restarts a trace that the kernel stopped because its AUX area was full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "capture/live/events/event_set.h"

namespace ptd::live {

/// A truncated trace is restarted as soon as there is space again. The kernel may stop it once more shortly after, by deferred work, and a
/// trace that found no space but lost no byte is not reported. So a ring that was full is checked again a little later: if no byte has
/// arrived, it is restarted again. Restarting a running trace would cause a gap. Not thread-safe.
class TraceRevival {
 public:
  /// Declares that the kernel reported lost trace for one of EventSet::rings().
  void was_cut(size_t ring) { suspects_[ring].cut = true; }
  /// Declares that its area was full before it was drained.
  void was_full(size_t ring) { (void)suspects_[ring]; }
  /// Called after the areas were drained. Returns the maximum time in ms until the next call.
  int look(const EventSet& events, uint64_t now_ns);

 private:
  struct Suspect {
    bool cut = false;
    uint64_t head = 0, since_ns = 0;  // since_ns 0: not looked at yet
  };
  std::map<size_t, Suspect> suspects_;
  uint64_t all_ns_ =
      0;  // when everything is turned on again, whatever happened: a thread that was started while its parent's event was off
};

}  // namespace ptd::live
