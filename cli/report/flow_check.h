// FlowCheck: which mapped files the flow contradicts, found by decoding for a bounded time. For CoreSight, whose recordings hold no record
// of a kernel that patches its text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd::cli {

/// One mapped file (or other code) whose bytes are not the executed ones.
struct FlowContradiction {
  std::string path, build_id;  ///< may be empty
  uint64_t packets = 0;        ///< packets that do not fit
  std::vector<Ip> places;      ///< different addresses, in order of the flow; at most kShownPlaces
  uint64_t more_places = 0;    ///< different addresses beyond those (counted up to kCountedPlaces in all)
  Interval first_time;         ///< of the first
};

struct FlowCheck {
  static constexpr size_t kShownPlaces = 4, kCountedPlaces = 1U << 16;
  std::vector<FlowContradiction> contradictions;  ///< by path
  uint64_t decoded_bytes = 0, all_bytes = 0;      ///< of trace; less than all if the time was over
};

/// Decodes the CoreSight streams of `recording`, one after the other, for at most `budget_seconds`. Recordings of Intel PT have none.
[[nodiscard]] FlowCheck check_flow(const Recording& recording, double budget_seconds);
/// For people, without newline.
[[nodiscard]] std::string contradiction_text(const FlowContradiction& contradiction);
[[nodiscard]] nlohmann::json contradiction_json(const FlowContradiction& contradiction);

}  // namespace ptd::cli
