// What a ptd_cursor walks: a source of items for each kind of cursor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "capi/control.h"
#include "capi/handle.h"
#include "ptdecode/flow.h"

namespace ptd::capi {

/// What a cursor walks, as its options say.
struct CursorRequest {
  std::shared_ptr<const OpenedRecording> recording;
  std::vector<uint32_t> streams;
  Interval time;
  unsigned threads = 0;
};

/// Not thread-safe. next() may throw, Cancelled too.
class ItemSource {
 public:
  virtual ~ItemSource() = default;
  /// Fills an item except its size. False: there are no more.
  virtual bool next(ptd_item& item) = 0;
};

[[nodiscard]] std::unique_ptr<ItemSource> make_flow_items(const CursorRequest& request, Control& control);
[[nodiscard]] std::unique_ptr<ItemSource> make_branch_items(const CursorRequest& request, Control& control);
[[nodiscard]] std::unique_ptr<ItemSource> make_call_items(const CursorRequest& request, Control& control);

/// PTD_TIME_UNKNOWN for either end of the line.
[[nodiscard]] inline int64_t to_ns(TimeNs time) {
  if (time == kTimeMin || time == kTimeMax) return PTD_TIME_UNKNOWN;
  return time.value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(time.value);
}
/// A moment that the caller gives; `unknown` for PTD_TIME_UNKNOWN.
[[nodiscard]] inline TimeNs from_ns(int64_t time_ns, TimeNs unknown) {
  if (time_ns == PTD_TIME_UNKNOWN) return unknown;
  return TimeNs{time_ns < 0 ? 0 : static_cast<uint64_t>(time_ns)};
}

/// A time range that the caller gives; 0 or PTD_TIME_UNKNOWN: no limit. False: it is empty, or an end is negative.
[[nodiscard]] inline bool read_range(int64_t first_ns, int64_t last_ns, Interval& out) {
  const auto given = [](int64_t time_ns) { return time_ns != 0 && time_ns != PTD_TIME_UNKNOWN; };
  if ((given(first_ns) && first_ns < 0) || (given(last_ns) && last_ns < 0)) return false;
  out = {given(first_ns) ? from_ns(first_ns, kTimeMin) : kTimeMin, given(last_ns) ? from_ns(last_ns, kTimeMax) : kTimeMax};
  return !out.empty();
}

/// Fills the fields that all items have, from the last mark of the stream.
void fill_context(ptd_item& item, const StreamInfo& info, uint32_t stream, const Mark& context, TimeNs now);
void fill_gap(ptd_item& item, const Gap& gap, TimeNs now);

}  // namespace ptd::capi
