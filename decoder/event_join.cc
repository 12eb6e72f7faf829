// EventJoin: uses the state of the stream so far to interpret events of the next segment.
#include "decoder/event_join.h"

namespace ptd {

void EventJoin::reset() {
  mode_ = interrupts_ = 0;
  resume_ = {};
}

void EventJoin::apply(Batch& batch) {
  for (Event& event : batch.events) {
    switch (event.kind) {
      case EventKind::exec_mode:
        if ((event.flags & kEventHasTo) == 0 || event.payload == mode_) {  // from a PSB+, or no change
          event.flags |= kEventStatus;
        } else {
          event.flags = static_cast<uint8_t>(event.flags & ~kEventStatus);
        }
        mode_ = event.payload;
        break;
      case EventKind::interrupt_flag:
        event.flags = static_cast<uint8_t>((event.flags & kEventHasTo) == 0 || event.payload == interrupts_ ? event.flags | kEventStatus
                                                                                                            : event.flags & ~kEventStatus);
        interrupts_ = event.payload;
        break;
      case EventKind::async_disabled:
      case EventKind::disabled:
        resume_ = Ip{event.aux};
        break;
      case EventKind::enabled:
        if ((event.flags & kEventStatus) == 0 && resume_.value != 0 && event.to == resume_) event.flags |= kEventResumed;
        resume_ = {};
        break;
      case EventKind::overflow:
        resume_ = {};
        break;
      default:
        break;
    }
  }
}

}  // namespace ptd
