// Parses events that count or that happen: "cycles:u", "sched:sched_switch", "cpu/event=0x3c/u". They sample, pause or resume a trace.
#pragma once

#include <string>

#include "perfio/ring/live_event.h"
#include "ptdecode/error.h"

namespace ptd::live {

/// An event besides the trace, in a group with it.
struct CounterEvent {
  perfio::EventSpec spec;
  std::string name;  ///< as perf names it: cycles:u
};

/// Parses EVENT[@PERIOD]. EVENT is one of perf's generic names (cycles, branch-misses, cpu-clock, page-faults ...), a tracepoint
/// SYSTEM:NAME, or PMU/TERMS/LEVELS; the first two can end in :LEVELS (u, k, h). Without a period, clocks take one of 1 ms, what counts
/// instructions or cycles 1,000,000, other hardware events 10,000, and all others 1. `option` is named in errors. Errors: bad_option;
/// no_hardware if there is no such PMU.
[[nodiscard]] Result<CounterEvent> parse_counter_event(const std::string& option, const std::string& text, const std::string& sysfs = "/sys",
                                                       const std::string& tracefs = "/sys/kernel/tracing");

/// Returns why the kernel refuses `event` in a group with a trace, and what that needs. `number`: errno of perf_event_open(2). `release`:
/// of the kernel, as uname(2) has it.
[[nodiscard]] std::string why_refused(const CounterEvent& event, const std::string& trace, int number, const std::string& release);

}  // namespace ptd::live
