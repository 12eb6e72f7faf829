// Tells whether a recording is a part of another one.
#pragma once

namespace ptd {

class Recording;

/// Returns whether the recording is a bundle that was cut to a time.
[[nodiscard]] bool is_part_of_trace(const Recording& recording);

inline constexpr const char* kPartOfTrace =
    "the bundle contains only a part of the trace (bundle --time): functions that were entered before it have no callers here";

}  // namespace ptd
