// The object of `ptdecode check --format json`, for it and for the report.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/report/flow_check.h"

namespace ptd::cli {

inline constexpr uint64_t kCheckedFlowBytes = 64U << 20;  ///< budget of check_flow()

/// Returns whether there is code to compare the trace with.
[[nodiscard]] bool has_code(const Recording& recording);
[[nodiscard]] nlohmann::json check_json(const Recording& recording, const FlowCheck& flow);

}  // namespace ptd::cli
