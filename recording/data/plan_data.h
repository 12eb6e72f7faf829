// PlanData: what a plan says of a trace that it does not contain. Private to recording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/finding.h"
#include "ptdecode/types.h"

namespace ptd {

/// A file with trace bytes.
struct TraceFile {
  std::string path;
  uint64_t size_bytes = 0;
};

/// Bytes of one file.
struct FileRange {
  uint32_t file = 0;  ///< index into PlanData::files
  uint64_t offset_bytes = 0, size_bytes = 0;
};

/// A part of one stream that is decoded on its own. A segment belongs to the unit in which it begins.
///
///     stream   ... | a | b | c | d | e | f | g | ...
///     unit                 [first ......[last
///     decoded      [from ...................[to         the flow before `first` and after `last` is decoded and not output
///
/// Invariant: the output of a unit depends only on the plan and the bytes [from, end).
struct PlanUnit {
  uint32_t stream = 0;
  uint64_t first_offset = 0, last_offset = 0;  ///< segments that begin in [first, last) are the unit's own
  uint64_t from_offset = 0, to_offset = 0;     ///< segments that begin in [from, to) are decoded
  uint64_t end_offset = 0;                     ///< bytes before it are read: to_offset, and the PSB+ there
  Interval time;                               ///< of the own segments
  uint64_t checksum = 0;                       ///< of the first bytes of the first segment that is decoded
  [[nodiscard]] bool owns(uint64_t segment_offset) const { return first_offset <= segment_offset && segment_offset < last_offset; }
};

struct PlanData {
  uint64_t id = 0;      ///< of the plan's whole content and the options of its reader: results of other plans have another one
  bool frozen = false;  ///< it was made with OpenOptions::freeze, and is decoded so
  std::vector<TraceFile> files;
  /// Of each stream, for each of its chunks in order: 1 + index of its file, and where it lies there. 0: the plan contains its bytes.
  std::vector<std::vector<std::pair<uint32_t, uint64_t>>> pieces;
  std::vector<PlanUnit> units;
  std::vector<Finding> findings;          ///< of the trace; the timeline has the others
  std::optional<int64_t> wall_offset_ns;  ///< add to a time for nanoseconds since the epoch; none: unknown
};

}  // namespace ptd
