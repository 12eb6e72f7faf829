// TraceRevival: restarts a trace that the kernel stopped because its AUX area was full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "capture/live/events/event_set.h"

namespace ptd::live {

/// A trace that was cut is restarted as soon as room has been made. The kernel may stop it again a moment later, by work that it had put
/// off; and one that found no room without losing a byte says nothing. So a ring that was full is looked at again a little later: if not a
/// byte has come, it is restarted once more. A restart of a trace that runs would be a gap. One thread.
class TraceRevival {
 public:
  /// Of one of EventSet::rings(): the kernel says that trace was lost.
  void was_cut(size_t ring) { suspects_[ring].cut = true; }
  /// Its area was full until it was given back.
  void was_full(size_t ring) { (void)suspects_[ring]; }
  /// After the areas were given back. Returns how many ms to wait at most until the next call.
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
