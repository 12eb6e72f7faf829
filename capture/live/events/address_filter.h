// Address filters by symbol: converts perf's syntax to the kernel's, which has only file offsets.
#pragma once

#include <string>

#include "ptdecode/error.h"

namespace ptd::live {

/// "filter main @ /bin/ls", "start F @ FILE, stop G @ FILE", "filter 0x1000/0x200 @ FILE", "tracestop schedule" (kernel, by kallsyms),
/// several with commas between them -> "filter 0x4a30/0x1c0@/bin/ls,..." ([perf_event.h] "PERF_EVENT_IOC_SET_FILTER"; tools/perf
/// Documentation/perf-record.txt "--filter"). The start is a number (a file offset or a kernel address) or a symbol. After '/' follows a
/// size, or another symbol at whose end the range ends; `filter` without one uses the symbol's size. An ambiguous symbol is chosen with #N.
/// `kallsyms`: text of /proc/kallsyms. `ranges`: number of ranges of the hardware (caps/num_address_ranges); 0: not known.
/// Errors: usage, with the place; file_open for a file.
[[nodiscard]] Result<std::string> resolve_filter(const std::string& text, const std::string& kallsyms, uint64_t ranges);

}  // namespace ptd::live
