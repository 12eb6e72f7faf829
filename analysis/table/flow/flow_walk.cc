// FlowWalk: see flow_walk.h.
#include "analysis/table/flow/flow_walk.h"

#include <algorithm>

#include "ptdecode/likeliest_time.h"

namespace ptd {

FlowWalk::FlowWalk(const Recording& recording, const TableRequest& request)
    : recording_(recording),
      request_(request),
      cursor_(recording, request.streams, request.time),
      contexts_(recording.streams().size()),
      total_bytes_(trace_bytes(recording, request.streams)) {
  cursor_.free_ended();
  cursor_.set_check([this] { return is_check_due_ = true; });
  if (request.unit) cursor_.set_range(request.unit->from_offset, request.unit->to_offset);
  for (uint32_t i = 0; i < contexts_.size(); ++i) {
    contexts_[i].row.stream = i;
    contexts_[i].row.cpu = recording.streams()[i].cpu;
    contexts_[i].row.tid = recording.streams()[i].tid;
    contexts_[i].wanted = wants(contexts_[i].row);
  }
}

bool FlowWalk::wants(const RowContext& row) const {
  const auto matches = [](int32_t filter, int32_t value) { return filter == -1 || filter == value; };
  return matches(request_.cpu, row.cpu) && matches(request_.pid, row.pid) && matches(request_.tid, row.tid) &&
         request_.time.contains(row.time);
}

RowContext FlowWalk::context_of(uint32_t stream, const Mark& mark, TimeNs time) const {
  return {recording_.has_time_conversion() ? time : kTimeMin, mark.space, mark.pid, mark.tid, recording_.streams()[stream].cpu, stream};
}

void FlowWalk::report() const {
  if (request_.progress) request_.progress(cursor_.decoded_bytes(), total_bytes_);
}

Status FlowWalk::check() {
  if (request_.cancelled && request_.cancelled()) return Error{ErrorCode::cancelled, "the caller cancelled the operation", 0};
  is_check_due_ = false;
  report();
  return {};
}

Result<FlowItem> FlowWalk::next() {
  if (is_check_due_) [[unlikely]] {
    if (Status status = check(); !status) return status.error();
  }
  const FlowItem item = cursor_.next();
  if (item == FlowItem::mark) {
    Context& context = contexts_[stream()];
    const Mark& mark = cursor_.item().mark();
    context.row = context_of(stream(), mark, is_dated(mark) ? cursor_.item().now() : kTimeMin);
    context.wanted = wants(context.row);
  } else if (item == FlowItem::end) {
    report();
  }
  return item;
}

}  // namespace ptd
