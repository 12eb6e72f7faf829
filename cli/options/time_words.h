// The words of --time: moments of the recording, of its length, and of the day.
#pragma once

#include <optional>
#include <string_view>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::cli {

/// What relative words refer to.
struct TimeScale {
  Interval span;                          ///< of the recording's trace; "+" needs its start, percent both ends
  std::optional<int64_t> wall_offset_ns;  ///< time of day = time + this
};

/// "A,B", "A,", ",B", "A,+5ms" (5 ms from A on), "P%-Q%" of the recording. A and B are seconds as listings print them, "+5ms" after the
/// start of the trace ("+0.005" without a unit: seconds, too), "30%" of it, or the time of day: "14:03:05.25" (of the day on which the
/// recording began) or "2026-11-21 14:03:05". Errors: usage, one sentence with an example.
[[nodiscard]] Result<Interval> parse_time_words(std::string_view text, const TimeScale& scale);

}  // namespace ptd::cli
