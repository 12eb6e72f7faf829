// RecordingCursor: pulls the flow of several streams, merged in order of time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/stream_cursor.h"
#include "ptdecode/time_merge.h"

namespace ptd {

/// Walks several streams of a recording as one sequence of items. Items are ordered by now(); of equal times, the stream named first comes
/// first. Within a stream the order is StreamCursor's. A stream without times comes before all others; items before a stream's first time
/// come when StreamInfo::time begins. From then on, a stream has a decoder and one batch: memory grows with the number of streams and not
/// with the trace; with free_ended(), with the number of streams that overlap.
///
/// The recording must outlive the cursor. Not thread-safe; any number of cursors may walk one recording at the same time.
class PTD_API RecordingCursor {
 public:
  /// Walks all of each segment of `streams` (empty: all) that may overlap `time`. A stream that does not exist has no items.
  explicit RecordingCursor(const Recording& recording, std::span<const uint32_t> streams = {}, Interval time = {});

  /// Same as StreamCursor::set_check(), for each stream.
  void set_check(const std::function<bool()>& goes_on);

  /// Same as StreamCursor::set_past_end(), for each stream.
  void set_past_end(const std::function<bool(uint32_t stream, uint64_t segment)>& goes_on);

  /// Same as StreamCursor::set_on_batch(), for each stream.
  void set_on_batch(const std::function<void(const Batch&, const BlockTable&, const AuxSegment&)>& on_batch);

  /// Frees the table of each stream in the call of next() after that with which the stream ended.
  void free_ended() { frees_ended_ = true; }
  /// Returns the streams that ended in the last call of next(). Valid until the next call.
  [[nodiscard]] const std::vector<uint32_t>& ended() const { return ended_; }

  /// Same as StreamCursor::set_range(), for each stream.
  void set_range(uint64_t first_offset, uint64_t last_offset);

  /// Moves to the next item. FlowItem::end: all streams have ended.
  FlowItem next();

  /// Returns the stream of the item of the last next(). Valid after next() returned another item than FlowItem::end.
  [[nodiscard]] uint32_t stream() const { return heads_.current().stream; }
  /// Returns the cursor of that stream: its blocks(), mark(), event(), gap(), context(), now() and table(). Valid until the next call of
  /// next(); the table lives as long as this cursor, unless free_ended() was called.
  [[nodiscard]] const StreamCursor& item() const { return heads_.current().cursor; }

  /// Returns the number of trace bytes decoded so far, of all streams.
  [[nodiscard]] uint64_t decoded_bytes() const;

 private:
  struct Head {
    uint32_t stream = 0;
    StreamCursor cursor;
    FlowItem item = FlowItem::end;
    bool advance() {
      item = cursor.next();
      return item != FlowItem::end;
    }
    [[nodiscard]] TimeNs time() const { return cursor.now(); }
  };
  TimeMerge<Head> heads_;
  std::vector<uint32_t> ended_;
  bool frees_ended_ = false;
};

}  // namespace ptd
