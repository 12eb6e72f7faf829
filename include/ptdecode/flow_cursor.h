// FlowCursor: one batch as one sequence of blocks, marks, events and gaps in their true order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "ptdecode/flow.h"
#include "ptdecode/likeliest_time.h"

namespace ptd {

/// What FlowCursor::next() found.
enum class FlowItem : uint8_t {
  end,     ///< nothing more in this batch
  blocks,  ///< blocks(): one or more blocks without anything between them
  mark,    ///< mark(): the context changes
  event,   ///< event()
  gap,     ///< gap(): the flow is lost here
};

/// Walks batches of one stream. A Batch keeps its blocks, marks, events and gaps in four lists; the cursor merges them:
///
///     FlowCursor cursor;
///     for (each batch) {
///       cursor.begin(batch);
///       for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) ...
///     }
///
/// The order of items between two blocks:
///  - Events and gaps are in the order of their packets (stream_offset_bytes). A gap comes before an event of the same packet.
///  - An event that ends the flow of a thread (disabled, async_disabled, async_branch to code that is not traced) comes before the mark of
///    the next
///  thread, or of its next program, and an event that begins it (enabled) comes after that mark. Events before the former do, too.
///  - Otherwise a mark comes before an event unless the mark has a later time (likeliest()), and before a gap only if it has an earlier
///  time.
///
/// The context and the time carry over from batch to batch. The batch must stay unchanged while it is walked. Not thread-safe.
class FlowCursor {
 public:
  /// Starts a batch. The context of the previous batch carries over.
  void begin(const Batch& batch) {
    batch_ = &batch;
    mark_ = event_ = gap_ = leaving_ = 0;
    first_ = end_ = 0;
    mark_at_ = place_of(batch.marks, 0);
    find_other();
  }
  /// Forgets context and time, for use with another stream.
  void reset() { *this = FlowCursor(); }

  /// Moves to the next item.
  FlowItem next() {
    first_ = end_;
    if (other_at_ <= first_) [[unlikely]]
      return boundary(mark_at_ <= first_);
    if (mark_at_ <= first_) return pass_mark();
    const auto count = static_cast<uint32_t>(batch_->blocks.size());
    if (first_ >= count) return FlowItem::end;
    end_ = std::min({count, mark_at_, other_at_});
    left_ = false;
    return FlowItem::blocks;
  }

  /// After a mark with a time: passes the blocks and marks that follow, as long as they are pairs of blocks and a mark of the same thread
  /// whose time does not go back. The last mark that has a later time than the one before it is then the item. Returns the blocks that were
  /// passed.
  std::span<const Block> pass_marks() {
    const uint32_t begin = first_;
    const Mark& from = batch_->marks[mark_ - 1];
    uint32_t blocks_end = begin;  // of the mark before
    TimeNs time = likeliest(from);
    size_t last = mark_ - 1;
    for (size_t next = mark_; next < batch_->marks.size(); ++next) {
      const Mark& mark = batch_->marks[next];
      if (mark.tid != from.tid || mark.pid != from.pid || mark.before_block <= blocks_end || mark.before_block >= other_at_) break;
      const TimeNs before = std::exchange(time, likeliest(mark));
      if (!is_dated(mark) || time < before) break;
      blocks_end = mark.before_block;
      if (before < time) last = next;
    }
    if (last + 1 == mark_) return {};
    first_ = end_ = batch_->marks[last].before_block;
    mark_ = last;
    pass_mark();
    return std::span(batch_->blocks).subspan(begin, first_ - begin);
  }

  /// Return the item of the last next(). Valid as long as the batch.
  [[nodiscard]] std::span<const Block> blocks() const { return std::span(batch_->blocks).subspan(first_, end_ - first_); }
  [[nodiscard]] const Mark& mark() const { return batch_->marks[mark_ - 1]; }
  [[nodiscard]] const Event& event() const { return batch_->events[event_ - 1]; }
  [[nodiscard]] const Gap& gap() const { return batch_->gaps[gap_ - 1]; }

  /// Returns the index in the batch of the first block after this item; for blocks(), of their first block.
  [[nodiscard]] uint32_t position() const { return first_; }
  /// Returns the context of the item: thread, space, mode and time bounds of the last mark. All unknown before the first.
  [[nodiscard]] const Mark& context() const { return context_; }
  /// Returns the likeliest time of the item. It never goes back. kTimeMin: no mark or event so far has a time.
  [[nodiscard]] TimeNs now() const { return time_.now(); }

 private:
  /// Returns `before_block` of an item; beyond all blocks if there is none.
  template <typename Items>
  [[nodiscard]] static uint32_t place_of(const Items& items, size_t index) {
    return index < items.size() ? items[index].before_block : ~uint32_t{0};
  }

  void find_other() { other_at_ = std::min(place_of(batch_->events, event_), place_of(batch_->gaps, gap_)); }
  FlowItem pass_mark() {
    left_ = left_ && batch_->marks[mark_].tid == context_.tid;
    context_ = batch_->marks[mark_++];
    mark_at_ = place_of(batch_->marks, mark_);
    time_.pass(context_);
    return FlowItem::mark;
  }
  FlowItem boundary(bool mark) {
    const bool event = place_of(batch_->events, event_) <= first_, gap = place_of(batch_->gaps, gap_) <= first_;
    const bool gap_first = gap && (!event || batch_->gaps[gap_].stream_offset_bytes <= batch_->events[event_].stream_offset_bytes);
    if (mark && (gap_first ? precedes(batch_->marks[mark_], batch_->gaps[gap_]) : precedes(batch_->marks[mark_], batch_->events[event_]))) {
      return pass_mark();
    }
    if (gap_first) {
      ++gap_;
      left_ = true;
    } else {
      const Event& passed = batch_->events[event_++];
      if (leaves(passed) || passed.kind == EventKind::enabled) left_ = leaves(passed);
      time_.pass(passed);
    }
    find_other();
    return gap_first ? FlowItem::gap : FlowItem::event;
  }
  [[nodiscard]] static bool leaves(const Event& event) {
    const bool is_untraced = event.kind == EventKind::async_branch && (event.flags & kEventHasTo) == 0;
    return event.kind == EventKind::disabled || event.kind == EventKind::async_disabled || is_untraced;
  }
  /// Returns whether one of the next events before the next block ends the flow of a thread.
  bool ends_here() {
    leaving_ = std::max(leaving_, event_);
    while (place_of(batch_->events, leaving_) <= first_ && !leaves(batch_->events[leaving_])) ++leaving_;
    return place_of(batch_->events, leaving_) <= first_;
  }
  [[nodiscard]] bool precedes(const Mark& mark, const Event& event) {
    if (mark.tid != context_.tid && !left_ && ends_here()) return false;
    if (mark.tid != context_.tid && event.kind == EventKind::enabled) return true;
    const bool is_next = mark.tid != context_.tid || (!is_dated(mark) && mark.space != context_.space);  // thread, or program
    if (leaves(event) && context_.tid != -1 && is_next) return false;
    return !is_dated(mark) || !is_dated(event) || likeliest(mark) <= likeliest(event);
  }
  [[nodiscard]] static bool precedes(const Mark& mark, const Gap& gap) {
    return is_dated(mark) && is_dated(gap) && mark.time.first < gap.time.first;
  }

  const Batch* batch_ = nullptr;
  size_t mark_ = 0, event_ = 0, gap_ = 0;  // indices of the next ones
  size_t leaving_ = 0;                     // see ends_here(): no event between event_ and this one ends a flow
  bool left_ = true;                       // the flow of the context's thread has ended, or not begun
  uint32_t mark_at_ = 0, other_at_ = 0;    // before_block of the next mark, and of the next event or gap
  uint32_t first_ = 0, end_ = 0;           // blocks of the item
  Mark context_;
  LikeliestTime time_;
};

}  // namespace ptd
