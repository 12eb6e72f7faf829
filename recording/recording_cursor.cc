// RecordingCursor: see ptdecode/recording_cursor.h.
#include "ptdecode/recording_cursor.h"

#include <numeric>

namespace ptd {

RecordingCursor::RecordingCursor(const Recording& recording, std::span<const uint32_t> streams, Interval time) {
  std::vector<uint32_t> all;
  if (streams.empty()) {
    all.resize(recording.streams().size());
    std::iota(all.begin(), all.end(), 0U);
    streams = all;
  }
  heads_.reserve(streams.size());
  for (const uint32_t stream : streams) {
    const bool exists = stream < recording.streams().size();
    heads_.add(Head{stream, StreamCursor(recording, stream, time)}, exists ? recording.streams()[stream].time.first : kTimeMin);
  }
}

void RecordingCursor::set_check(const std::function<bool()>& goes_on) {
  for (Head& head : heads_.sources()) head.cursor.set_check(goes_on);
}

void RecordingCursor::set_past_end(const std::function<bool(uint32_t stream, uint64_t segment)>& goes_on) {
  for (Head& head : heads_.sources())
    head.cursor.set_past_end([goes_on, stream = head.stream](uint64_t segment) { return goes_on(stream, segment); });
}

void RecordingCursor::set_on_batch(const std::function<void(const Batch&, const BlockTable&, const AuxSegment&)>& on_batch) {
  for (Head& head : heads_.sources()) head.cursor.set_on_batch(on_batch);
}

void RecordingCursor::set_range(uint64_t first_offset, uint64_t last_offset) {
  for (Head& head : heads_.sources()) head.cursor.set_range(first_offset, last_offset);
}

uint64_t RecordingCursor::decoded_bytes() const {
  uint64_t bytes = 0;
  for (const Head& head : heads_.sources()) bytes += head.cursor.decoded_bytes();
  return bytes;
}

FlowItem RecordingCursor::next() {
  if (frees_ended_) {
    for (const uint32_t ended : heads_.ended()) heads_.sources()[ended].cursor.release();
  }
  const Head* head = heads_.next();
  ended_.clear();
  for (const uint32_t ended : heads_.ended()) ended_.push_back(heads_.sources()[ended].stream);
  return head == nullptr ? FlowItem::end : head->item;
}

}  // namespace ptd
