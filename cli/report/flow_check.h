// FlowCheck: which mapped files the flow contradicts and which code it misses, found by decoding a bounded part of the trace.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/options/progress.h"
#include "cli/report/missing_report.h"
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
  std::vector<FlowContradiction> contradictions;  ///< by packets, most first
  std::vector<MissingLine> missing;               ///< code without bytes that the flow came to; the largest loss first
  uint64_t blocks = 0;                            ///< decoded
  uint64_t instructions = 0, uncertain = 0;       ///< decoded; of these in blocks that are ambiguous or suspect
  uint64_t decoded_bytes = 0, all_bytes = 0;      ///< of trace
  [[nodiscard]] bool is_empty() const { return all_bytes != 0 && decoded_bytes == all_bytes && blocks == 0; }
  [[nodiscard]] bool agrees() const { return contradictions.empty() && missing.empty() && !is_empty(); }
};

/// Decodes the beginning of each stream of `recording`: about `budget_bytes` of all streams together, each with its share by size, and at least
/// its first segment. The result depends on the recording and the budget only.
[[nodiscard]] FlowCheck check_flow(const Recording& recording, uint64_t budget_bytes, Progress& progress);
/// For people, without newline.
[[nodiscard]] std::string contradiction_text(const FlowContradiction& contradiction);
[[nodiscard]] nlohmann::json contradiction_json(const FlowContradiction& contradiction);
/// One line of FlowCheck::missing, without newline.
[[nodiscard]] std::string missing_code_text(const MissingLine& line);

}  // namespace ptd::cli
