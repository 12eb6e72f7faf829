// Miscounts: MTC packets that count to a later time than the TSC after them, and Arm timestamps that contradict others. Private to the
// project.
#pragma once

#include <vector>

#include "ptdecode/finding.h"

namespace ptd {

class Recording;

/// Reports one finding for each stream with such packets: see pt::TimeAhead. Same for Arm timestamps inside segments: see
/// arm::check_timestamps(). Also reports each place where Arm context packets contradict the switch records. Reads these packets of the
/// whole trace, so Recording::findings() does not contain them. Empty for a plan.
[[nodiscard]] std::vector<Finding> miscount_findings(const Recording& recording);

}  // namespace ptd
