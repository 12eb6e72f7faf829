// What a perf.data says of emulated CoreSight: the event and AUXTRACE_INFO of cs_etm. A cpu a thread, each with a trace unit and a
// buffer of its own.
#pragma once

#include "perfio/perf_reader.h"

namespace ptd::emulate {

/// The cs_etm event: context ids, timestamps and a return stack, user mode only.
[[nodiscard]] perfio::EventAttr etm_attr();
[[nodiscard]] perfio::AuxtraceInfoRecord etm_auxtrace_info(uint32_t cpus, bool ete);

}  // namespace ptd::emulate
