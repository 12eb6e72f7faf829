// Parses the events that sample, pause or resume a trace: "cycles:u", "sched:sched_switch", "cpu/event=0x3c/u".
#pragma once

#include <string>

#include "perfio/ring/live_event.h"
#include "ptdecode/error.h"

namespace ptd::live {

/// An event in a group with the trace event.
struct CounterEvent {
  perfio::EventSpec spec;
  std::string name;  ///< as perf names it: cycles:u
};

/// Parses EVENT[@PERIOD]. EVENT is one of perf's generic names (cycles, branch-misses, cpu-clock, page-faults ...), a tracepoint
/// SYSTEM:NAME, or PMU/TERMS/LEVELS; the first two can end in :LEVELS (u, k, h). The default period is 1 ms for clocks, 1,000,000 for
/// instructions and cycles, 10,000 for other hardware events, and 1 for all others. Errors name `option`. Errors: bad_option;
/// no_hardware if there is no such PMU.
[[nodiscard]] Result<CounterEvent> parse_counter_event(const std::string& option, const std::string& text,
                                                       const std::string& sysfs = "/sys",
                                                       const std::string& tracefs = "/sys/kernel/tracing");

/// Returns a message that says why the kernel refuses `event` in a group with a trace, and what is needed. `number`: errno of
/// perf_event_open(2). `release`: kernel release from uname(2).
[[nodiscard]] std::string why_refused(const CounterEvent& event, const std::string& trace, int number, const std::string& release);

}  // namespace ptd::live
