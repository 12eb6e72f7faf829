// The packet table of a trace unit that counts no cycles. Private to the project.
#pragma once

#include "ptdecode/arm/packet_table.h"

namespace ptd::arm {

/// Returns the table for a configuration in which packets with a cycle count are reserved: cycle count packets, and timestamps with one. It has static
/// lifetime.
[[nodiscard]] const Dispatch& uncounted_dispatch_of(const TraceConfig& config);

}  // namespace ptd::arm
