// What `ptdecode stat` counts, for it and for the report.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/calls/loss_report.h"
#include "cli/list/stream_stat.h"
#include "cli/options/progress.h"
#include "cli/report/missing_report.h"

namespace ptd::cli {

struct StatRequest {
  std::vector<uint32_t> streams;
  bool packets_only = false;
  unsigned threads = 0;  ///< 0: one for each core
  /// Called with each batch, those of one stream in order. Streams are counted on several threads. Empty: never.
  std::function<void(uint32_t stream, const Batch&)> on_batch;
};

struct StatCounts {
  std::vector<StreamStat> streams;  ///< as requested
  LossSum losses;
  GapTally gaps;
  bool is_decoded = true;    ///< if not, only packets are counted
  uint64_t total_bytes = 0;  ///< of trace
};

/// Decodes the streams and counts. Ctrl-C ends it early.
[[nodiscard]] StatCounts count_streams(const Recording& recording, const StatRequest& request, Progress& progress);
/// The object of `ptdecode stat --format json`.
[[nodiscard]] nlohmann::json stat_report_json(const Recording& recording, const StatCounts& counts);
[[nodiscard]] std::map<std::string_view, size_t> findings_by_kind(const Recording& recording);
/// What was lost while recording or by damage of the files, one sentence each. The streams' gaps show it only where trace follows.
[[nodiscard]] std::vector<std::string> losses_of(const Recording& recording);

}  // namespace ptd::cli
