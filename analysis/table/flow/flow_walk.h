// FlowWalk: the items of a recording's flow with the context of their rows, for tables of the flow.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "analysis/table/table.h"
#include "ptdecode/recording_cursor.h"

namespace ptd {

/// Where and when something ran: the columns that all tables of the flow have.
struct RowContext {
  TimeNs time{};  ///< kTimeMin: unknown
  SpaceId space = kNoSpace;
  int32_t pid = -1, tid = -1, cpu = -1;
  uint32_t stream = 0;
};

/// RecordingCursor with the request's filters, cancellation and progress. Not thread-safe.
class FlowWalk {
 public:
  FlowWalk(const Recording& recording, const TableRequest& request);
  FlowWalk(const FlowWalk&) = delete;
  FlowWalk& operator=(const FlowWalk&) = delete;

  /// As RecordingCursor::set_on_batch().
  void set_on_batch(const std::function<void(const Batch&, const BlockTable&, const AuxSegment&)>& on_batch) {
    cursor_.set_on_batch(on_batch);
  }
  /// As RecordingCursor::set_past_end().
  void set_past_end(const std::function<bool(uint32_t stream, uint64_t segment)>& goes_on) { cursor_.set_past_end(goes_on); }
  /// As RecordingCursor::ended(). The tables of these streams are freed in the next call of next().
  [[nodiscard]] const std::vector<uint32_t>& ended() const { return cursor_.ended(); }
  /// Moves to the next item. Items that are not wanted come too, because they end what came before them; see wanted().
  [[nodiscard]] Result<FlowItem> next();

  [[nodiscard]] const StreamCursor& item() const { return cursor_.item(); }
  [[nodiscard]] uint32_t stream() const { return cursor_.stream(); }
  /// The context of the item: that of the last mark of its stream.
  [[nodiscard]] const RowContext& context() const { return contexts_[stream()].row; }
  /// Whether rows with this context are wanted.
  [[nodiscard]] bool wanted() const { return contexts_[stream()].wanted && owns(item().segment_offset()); }
  /// Whether what begins in the segment at `offset` is of the request's unit.
  [[nodiscard]] bool owns(uint64_t offset) const { return !request_.unit || request_.unit->owns(offset); }
  [[nodiscard]] bool wants(const RowContext& row) const;
  /// The context of a row of `stream`.
  [[nodiscard]] RowContext context_of(uint32_t stream, const Mark& mark, TimeNs time) const;

 private:
  struct Context {
    RowContext row;
    bool wanted = false;
  };
  void report() const;
  [[nodiscard]] Status check();

  const Recording& recording_;
  const TableRequest request_;
  RecordingCursor cursor_;
  std::vector<Context> contexts_;  ///< one a stream
  const uint64_t total_bytes_;
  bool is_check_due_ = true;  ///< a batch was decoded since the last look at `cancelled`
};

}  // namespace ptd
