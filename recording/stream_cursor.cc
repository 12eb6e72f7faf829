// StreamCursor: see ptdecode/stream_cursor.h.
#include "ptdecode/stream_cursor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "decoder/event_join.h"

namespace ptd {

struct StreamCursor::State {
  const Recording* recording = nullptr;
  uint32_t stream = 0;
  Interval time;
  uint64_t at = 0;                               ///< stream offset of the next segment
  uint64_t last_offset = Recording::kStreamEnd;  ///< segments that begin there or later are not wanted
  std::unique_ptr<FlowDecoder> decoder;          ///< made for the first segment: a stream without any needs no memory
  AuxSegment segment;
  std::vector<std::byte> scratch;
  bool in_segment = false;
  bool past_end = false;       ///< the segment is after `time`
  uint64_t decoded_bytes = 0;  ///< of segments that are over
  std::function<bool()> goes_on;
  std::function<bool(uint64_t segment)> goes_past_end;
  std::function<void(const Batch&, const BlockTable&, const AuxSegment&)> on_batch;
  Batch batch;
  EventJoin join;
  FlowCursor cursor;

  /// Fills the next batch; false at the end of the stream or of the wanted time.
  bool fill();
  /// Whether the next item is not wanted.
  [[nodiscard]] bool is_over() const { return past_end && !(goes_past_end && goes_past_end(segment.stream_offset_bytes)); }
};

bool StreamCursor::State::fill() {
  if (goes_on && !goes_on()) return false;
  if (!in_segment) {
    if (at >= last_offset || !recording->next_segment(stream, at, segment, scratch)) return false;
    if (segment.stream_offset_bytes >= last_offset) return false;
    past_end = past_end || time.last < segment.time.first;
    if (is_over()) return false;
    if (!decoder) decoder = recording->make_decoder(stream);
    decoder->begin(segment);
  }
  batch.clear();
  in_segment = decoder->next(batch);
  if (!in_segment) decoded_bytes += segment.bytes.size() - segment.tail_bytes;
  join.apply(batch);
  if (on_batch) on_batch(batch, decoder->blocks(), segment);
  cursor.begin(batch);
  return true;
}

StreamCursor::StreamCursor(const Recording& recording, uint32_t stream, Interval time) : state_(std::make_unique<State>()) {
  state_->recording = &recording;
  state_->stream = stream;
  state_->time = time;
  if (time.first != kTimeMin) state_->at = recording.segment_at(stream, time.first);
  state_->cursor.begin(state_->batch);
}
StreamCursor::~StreamCursor() = default;
StreamCursor::StreamCursor(StreamCursor&&) noexcept = default;
StreamCursor& StreamCursor::operator=(StreamCursor&&) noexcept = default;

void StreamCursor::set_check(std::function<bool()> goes_on) { state_->goes_on = std::move(goes_on); }

void StreamCursor::set_past_end(std::function<bool(uint64_t segment)> goes_on) { state_->goes_past_end = std::move(goes_on); }

void StreamCursor::set_on_batch(std::function<void(const Batch&, const BlockTable&, const AuxSegment&)> on_batch) {
  state_->on_batch = std::move(on_batch);
}

void StreamCursor::set_range(uint64_t first_offset, uint64_t last_offset) {
  state_->at = std::max(state_->at, first_offset);
  state_->last_offset = last_offset;
}

uint64_t StreamCursor::segment_offset() const { return state_->segment.stream_offset_bytes; }

FlowItem StreamCursor::next() {
  if (state_->is_over()) [[unlikely]]
    return FlowItem::end;
  FlowItem item = state_->cursor.next();
  while (item == FlowItem::end && state_->fill()) item = state_->cursor.next();
  return item;
}

void StreamCursor::release() {
  state_->at = Recording::kStreamEnd;
  state_->in_segment = false;
  state_->decoder.reset();
  state_->batch = {};
  state_->scratch = {};
  state_->segment = {};
  state_->cursor.begin(state_->batch);
}

std::span<const Block> StreamCursor::blocks() const { return state_->cursor.blocks(); }
const Mark& StreamCursor::mark() const { return state_->cursor.mark(); }
const Event& StreamCursor::event() const { return state_->cursor.event(); }
const Gap& StreamCursor::gap() const { return state_->cursor.gap(); }
const Mark& StreamCursor::context() const { return state_->cursor.context(); }
uint64_t StreamCursor::decoded_bytes() const { return state_->decoded_bytes; }
TimeNs StreamCursor::now() const { return state_->cursor.now(); }
const BlockTable& StreamCursor::table() const {
  static const BlockTable kNone;
  return state_->decoder ? state_->decoder->blocks() : kNone;
}

}  // namespace ptd
