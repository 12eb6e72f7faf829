// The words that mark a bundle of a part of a trace.
#pragma once

namespace ptd {

/// In the description of a bundle that was cut to a time.
inline constexpr const char* kPartOfTrace =
    "only a part of the trace (bundle --time): functions that were entered before it have no callers here";

}  // namespace ptd
