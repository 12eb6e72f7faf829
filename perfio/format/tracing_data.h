// The ftrace event formats in TRACING_DATA, such as the recorded kernel's sched:sched_switch.
#pragma once

#include <cstdint>

#include "ptdecode/types.h"

namespace ptd::perfio {

/// The positions of the tids in the raw payload of a sched:sched_switch sample. Defaults: all x86-64 and arm64 kernels so far.
struct SchedSwitchFormat {
  uint64_t id = 0;  ///< tracepoint id (perf_event_attr.config); 0 unknown
  uint32_t prev_pid_offset_bytes = 24;
  uint32_t next_pid_offset_bytes = 56;
};

/// Finds the format text named sched_switch. Returns false if there is none; `out` then keeps its defaults.
bool find_sched_switch(Bytes tracing_data, SchedSwitchFormat& out);

}  // namespace ptd::perfio
