// Which blocks `verify` counts as marked.
#pragma once

#include "ptdecode/flow.h"

namespace ptd::cli {

/// The flags that listings show on code that may be wrong. Code from a guessed image is marked too.
inline constexpr uint16_t kMarkedFlags = static_cast<uint16_t>(kUncertainFlags | static_cast<uint16_t>(BlockFlag::assumed));

}  // namespace ptd::cli
