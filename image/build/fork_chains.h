// cut_fork_chains(): bounds the number of ancestors that a look-up visits.
#pragma once

#include "image/timeline_data.h"

namespace ptd {

/// Maximum length of a chain of forks. Beyond it, the child starts with a snapshot of its parent's mappings (without its edits).
inline constexpr uint32_t kMaxForkDepth = 16;

/// Call once the sections of all spaces are known. Each parent comes before its children.
void cut_fork_chains(TimelineData& data);

}  // namespace ptd
