// LikeliestTime: the one moment by which calls, listings and coverage date what ran, where the trace tells two bounds.
#pragma once

#include <algorithm>

#include "ptdecode/export.h"
#include "ptdecode/flow.h"

namespace ptd {

/// Whether a mark or event has a moment. Nothing need bound it from above: behind the last timing packet nothing does.
template <typename Told>
[[nodiscard]] bool is_dated(const Told& told) {
  return told.time.first != kTimeMin;
}

/// The likeliest moment of a mark or event that has one.
template <typename Told>
[[nodiscard]] TimeNs likeliest(const Told& told) {
  return std::clamp(told.about, told.time.first, std::max(told.time.first, told.time.last));
}

/// The moment of a stream that is followed from mark to mark and event to event. It never goes back.
/// Plain state; not thread-safe.
class PTD_API LikeliestTime {
 public:
  template <typename Told>
  void pass(const Told& told) {
    if (is_dated(told)) now_ = std::max(now_, likeliest(told));
  }
  /// Passes a mark. Its bounds begin with the moment then.
  [[nodiscard]] Mark dated(Mark mark) {
    pass(mark);
    mark.time_known = is_dated(mark);
    if (mark.time_known) mark.time.first = now_;
    return mark;
  }
  [[nodiscard]] TimeNs now() const { return now_; }

 private:
  TimeNs now_{};
};

}  // namespace ptd
