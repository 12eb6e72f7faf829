// GapMarks: the gaps of a stream, each with the thread that ran. Private to the project.
#pragma once

#include "ptdecode/flow_cursor.h"

namespace ptd {

/// Fed with the batches of a stream in order. Not thread-safe.
class GapMarks {
 public:
  /// `stream_tid`: of a stream of one thread, else -1.
  explicit GapMarks(int32_t stream_tid = -1) : stream_tid_(stream_tid) { mark_.tid = stream_tid; }

  /// Calls use(gap, mark) for each gap of the batch, with the last mark before it.
  template <typename Use>
  void take(const Batch& batch, const Use& use) {
    if (batch.gaps.empty()) {
      if (!batch.marks.empty()) set(batch.marks.back());
      return;
    }
    cursor_.begin(batch);
    for (FlowItem item = cursor_.next(); item != FlowItem::end; item = cursor_.next()) {
      if (item == FlowItem::mark) set(cursor_.mark());
      if (item == FlowItem::gap) use(cursor_.gap(), mark_);
    }
  }

 private:
  void set(const Mark& mark) {
    mark_ = mark;
    if (mark_.tid < 0) mark_.tid = stream_tid_;
  }

  int32_t stream_tid_;
  Mark mark_;
  FlowCursor cursor_;
};

}  // namespace ptd
