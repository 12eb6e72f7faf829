// TraceRevival: see trace_revival.h.
#include "capture/live/session/trace_revival.h"

namespace ptd::live {

int TraceRevival::look(const EventSet& events, uint64_t now_ns) {
  constexpr uint64_t kSoonNs = 10'000'000, kAlwaysNs = 1'000'000'000, kMs = 1'000'000;
  for (auto at = suspects_.begin(); at != suspects_.end();) {
    auto& [ring, suspect] = *at;
    const uint64_t head = events.rings()[ring].aux->head();
    if (suspect.cut || suspect.since_ns == 0) {
      if (suspect.cut) events.restart_ring(ring);
      suspect = {false, head, now_ns};
      ++at;
    } else if (now_ns - suspect.since_ns < kSoonNs) {
      ++at;
    } else {
      if (head == suspect.head) events.restart_ring(ring);
      at = suspects_.erase(at);
    }
  }
  if (now_ns >= all_ns_) {
    events.enable_trace();
    all_ns_ = now_ns + kAlwaysNs;
  }
  return static_cast<int>((suspects_.empty() ? kAlwaysNs : kSoonNs) / kMs + 1);
}

}  // namespace ptd::live
