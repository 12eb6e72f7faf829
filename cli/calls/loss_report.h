// Lost flow as shares of time: by thread, over the run, and what to do about it.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "analysis/loss_times.h"
#include "cli/report/missing_report.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// Of all streams together.
struct LossSum {
  LossTimes::Threads threads;
  std::array<LossTimes::Bin, LossTimes::kBins> bins{};
  Interval span;  ///< what the bins share out
  void add(const LossTimes& losses);
};

/// From the first dated moment of the streams to the last; not bounded if nothing is dated.
[[nodiscard]] Interval dated_span(const Recording& recording);
/// A table, a histogram and remedies; empty if no flow was lost. `gaps`: what was lost, by reason.
[[nodiscard]] std::string loss_text(const LossSum& sum, const GapTally& gaps, const Recording& recording);
[[nodiscard]] nlohmann::json loss_json(const LossSum& sum, const Recording& recording);

}  // namespace ptd::cli
