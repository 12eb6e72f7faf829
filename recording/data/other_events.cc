// What samples of other events take in memory.
#include "recording/data/other_events.h"

namespace ptd {

uint64_t bytes_of(const OtherEvent& event) {
  constexpr uint64_t kInPlaceBytes = 15;  // a string as short as this is where its object is
  uint64_t bytes = sizeof event + event.fields.size() * sizeof(TracepointField) + event.raw.size();
  for (const TracepointField& field : event.fields) bytes += field.value.size() > kInPlaceBytes ? field.value.size() + 1 : 0;
  return bytes;
}

}  // namespace ptd
