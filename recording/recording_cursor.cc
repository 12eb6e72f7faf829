// RecordingCursor: see ptdecode/recording_cursor.h.
#include "ptdecode/recording_cursor.h"

#include <algorithm>
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
  for (const uint32_t stream : streams) heads_.push_back(Head{stream, StreamCursor(recording, stream, time)});
}

bool RecordingCursor::later(uint32_t a, uint32_t b) const {
  const Head &first = heads_[a], &second = heads_[b];
  const TimeNs first_time = first.cursor.now(), second_time = second.cursor.now();
  return first_time != second_time ? first_time > second_time : first.stream > second.stream;
}

uint64_t RecordingCursor::decoded_bytes() const {
  uint64_t bytes = 0;
  for (const Head& head : heads_) bytes += head.cursor.decoded_bytes();
  return bytes;
}

FlowItem RecordingCursor::next() {
  const auto after = [this](uint32_t a, uint32_t b) { return later(a, b); };
  if (!started_) {
    started_ = true;
    for (uint32_t i = 0; i < heads_.size(); ++i) {
      heads_[i].item = heads_[i].cursor.next();
      if (heads_[i].item != FlowItem::end) order_.push_back(i);
    }
    std::make_heap(order_.begin(), order_.end(), after);
  } else if (!order_.empty()) {
    // The stream of the last item usually stays the earliest, so it leaves the heap's front only if it must.
    Head& head = heads_[order_.front()];
    head.item = head.cursor.next();
    const uint32_t index = order_.front();
    const bool over = head.item == FlowItem::end;
    if (over || order_.size() > 1) {
      std::pop_heap(order_.begin(), order_.end(), after);
      order_.pop_back();
      if (!over) {
        order_.push_back(index);
        std::push_heap(order_.begin(), order_.end(), after);
      }
    }
  }
  return order_.empty() ? FlowItem::end : heads_[order_.front()].item;
}

}  // namespace ptd
