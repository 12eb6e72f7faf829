// RecordingCursor: pulls the flow of several streams, merged in order of time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/stream_cursor.h"

namespace ptd {

/// Walks several streams of a recording as one sequence of items. Items are ordered by now(); of equal times, the lower stream comes first.
/// Within a stream the order is StreamCursor's. A stream without times comes before all others. Each stream has a decoder and one batch, so
/// memory grows with the number of streams and not with the trace.
///
/// The recording must outlive the cursor. Not thread-safe; any number of cursors may walk one recording at the same time.
class PTD_API RecordingCursor {
 public:
  /// Walks the segments of `streams` (empty: all) that may hold a moment of `time`, whole. A stream that does not exist has no items.
  explicit RecordingCursor(const Recording& recording, std::span<const uint32_t> streams = {}, Interval time = {});

  /// Moves to the next item. FlowItem::end: all streams are over.
  FlowItem next();

  /// The stream of the item of the last next(). Valid after next() returned another item than FlowItem::end.
  [[nodiscard]] uint32_t stream() const { return heads_[order_.front()].stream; }
  /// The cursor of that stream: its blocks(), mark(), event(), gap(), context(), now() and table(). Valid until the next call of next();
  /// the table lives as long as this cursor.
  [[nodiscard]] const StreamCursor& item() const { return heads_[order_.front()].cursor; }

  /// Trace bytes decoded so far, of all streams.
  [[nodiscard]] uint64_t decoded_bytes() const;

 private:
  struct Head {
    uint32_t stream = 0;
    StreamCursor cursor;
    FlowItem item = FlowItem::end;
  };
  [[nodiscard]] bool later(uint32_t a, uint32_t b) const;

  std::vector<Head> heads_;
  std::vector<uint32_t> order_;  // a heap of indexes into heads_; the earliest first
  bool started_ = false;
};

}  // namespace ptd
