// FlowScan: decodes (part of) a recording to find the code and names that decoding needs. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "image/fetch_log.h"
#include "ptdecode/recording.h"

namespace ptd {

/// The segments of one stream that begin in [first, end).
struct SegmentSpan {
  uint64_t first = 0, end = 0;  ///< stream offsets
  uint64_t segments = 0, segments_total = 0;
};

/// Returns the segments that overlap `time`, and one more on either side if there is one.
[[nodiscard]] SegmentSpan spans_of(const Recording& recording, uint32_t stream, Interval time);

/// Addresses that a listing may name, by space.
using AddressSets = std::map<uint32_t, AddressSet>;

struct ScanResult {
  AddressSets named;
  uint64_t instructions = 0;
  std::map<SectionId, uint64_t> gaps;  ///< in which flow was lost because code of a section is missing
};

/// Decodes the spans (one per stream). Fetches are logged in the recording's FetchLog, if it has one.
Status scan_flow(const Recording& recording, const std::vector<SegmentSpan>& spans, ScanResult& result);

}  // namespace ptd
