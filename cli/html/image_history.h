// The image over time for the report: where code was mapped, patched and freed, and when.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/html/call_facts.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// Regions of addresses with their mappings and changes, and a list of changes with the code before and after each.
/// `span`: the time that the page shows. The result is bounded by `limits`.
[[nodiscard]] nlohmann::json image_history_json(const Recording& recording, Interval span, const PageLimits& limits);

}  // namespace ptd::cli
