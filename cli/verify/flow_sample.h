// Small pieces of flow as lines, for the demonstration: the flow at a place whose code changed, and two decodes side by side.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd::cli {

/// An int3 that was hit.
struct Int3Hit {
  int32_t cpu = -1;
  TimeNs when;
  Ip from, to;
};

/// Some bytes that ran at a site, when first and how often.
struct RanVersion {
  std::string bytes, text;
  TimeNs first, last;
  uint64_t times = 0;
  std::vector<std::string> around;  ///< lines of the flow around the first time
};

/// What a whole decode shows about code that changed. Bounded.
struct ChangedFlow {
  uint64_t instructions = 0, gaps = 0;
  std::vector<Int3Hit> int3;
  std::map<SiteId, std::vector<RanVersion>> ran;
};
[[nodiscard]] ChangedFlow watch_changes(const Recording& recording);

/// Instructions and gaps of the segment that begins at stream offset `segment` as lines; at most `limit`.
[[nodiscard]] std::vector<std::string> segment_lines(const Recording& recording, uint32_t stream, uint64_t segment, size_t limit);

}  // namespace ptd::cli
