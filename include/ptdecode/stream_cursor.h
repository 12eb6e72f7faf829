// StreamCursor: pulls the flow of a whole stream, item by item.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "ptdecode/export.h"
#include "ptdecode/flow_cursor.h"
#include "ptdecode/recording.h"

namespace ptd {

/// Decodes one stream on the caller's thread and walks its flow:
///
///     StreamCursor cursor(recording, 0);
///     for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
///       if (item != FlowItem::blocks) continue;
///       for (const Block& block : cursor.blocks()) use(cursor.table().info(block.node), cursor.now());
///     }
///
/// Events have the flags that need knowledge of earlier segments (kEventStatus, kEventResumed). The recording must outlive the cursor. Not
/// thread-safe; any number of cursors may walk one recording at the same time.
class PTD_API StreamCursor {
 public:
  /// Walks all of each segment of `stream` that may overlap `time`. A stream that does not exist has no items.
  StreamCursor(const Recording& recording, uint32_t stream, Interval time = {});
  ~StreamCursor();
  StreamCursor(StreamCursor&&) noexcept;
  StreamCursor& operator=(StreamCursor&&) noexcept;

  /// Sets a function that is called before each batch is decoded. If it returns false, FlowItem::end follows.
  void set_check(std::function<bool()> goes_on);

  /// Sets a function that decides, before each item after `time`, whether the walk goes on. `segment`: the stream offset of the item's
  /// segment. For a branch at the end of `time`: what comes next tells where it went.
  void set_past_end(std::function<bool(uint64_t segment)> goes_on);

  /// Sets a function that is called with each batch before next() returns its items.
  void set_on_batch(std::function<void(const Batch&, const BlockTable&, const AuxSegment&)> on_batch);

  /// Limits the walk to segments that begin in [first_offset, last_offset). Call before next().
  void set_range(uint64_t first_offset, uint64_t last_offset);
  /// Returns the stream offset of the segment that the item of the last next() is from.
  [[nodiscard]] uint64_t segment_offset() const;

  /// Moves to the next item. FlowItem::end: the end of the stream or of `time`.
  FlowItem next();

  /// Frees the decoder, the table and the last item. Call it only after next() returned FlowItem::end.
  void release();

  /// Returns the item of the last next(). Valid until the next call of next().
  [[nodiscard]] std::span<const Block> blocks() const;
  [[nodiscard]] const Mark& mark() const;
  [[nodiscard]] const Event& event() const;
  [[nodiscard]] const Gap& gap() const;

  /// Same as in FlowCursor.
  [[nodiscard]] const Mark& context() const;
  [[nodiscard]] TimeNs now() const;
  /// Returns the number of trace bytes decoded so far, in whole segments.
  [[nodiscard]] uint64_t decoded_bytes() const;
  /// Returns the table of the blocks' nodes. It grows while the cursor moves; its entries live as long as the cursor,
  /// or until release().
  [[nodiscard]] const BlockTable& table() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
