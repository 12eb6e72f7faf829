// LikeliestTime: the single time that calls, listings and coverage use for code whose time in the trace is an interval.
#pragma once

#include <algorithm>

#include "ptdecode/export.h"
#include "ptdecode/flow.h"

namespace ptd {

/// Returns whether a mark or event has a time. It needs no upper bound: after the last timing packet there is none.
template <typename Told>
[[nodiscard]] bool is_dated(const Told& told) {
  return told.time.first != kTimeMin;
}

/// Returns the likeliest time of a mark or event that has a time.
template <typename Told>
[[nodiscard]] TimeNs likeliest(const Told& told) {
  return std::clamp(told.about, told.time.first, std::max(told.time.first, told.time.last));
}

/// The current time of a stream, updated at each mark and event. It never goes back.
/// Plain state; not thread-safe.
class PTD_API LikeliestTime {
 public:
  template <typename Told>
  void pass(const Told& told) {
    if (is_dated(told)) now_ = std::max(now_, likeliest(told));
  }
  [[nodiscard]] TimeNs now() const { return now_; }

 private:
  TimeNs now_{};
};

}  // namespace ptd
