// The commit that the library is built from.
#pragma once

namespace ptd::capi {

/// 40 hexadecimal digits, with "-dirty" if a tracked file differs from it; or "unknown". Defined in a file that each build updates if it
/// changes.
extern const char* const kCommit;

}  // namespace ptd::capi
