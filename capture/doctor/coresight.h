// check_coresight(): what a machine with a cs_etm event can record. Private to the module.
#pragma once

#include <vector>

#include "capture/doctor/facts.h"

namespace ptd::doctor {

/// Adds the checks "pmu" (trace units of the processors) and "sink" (where the trace is written to) of a machine whose kernel has the event
/// cs_etm. Source: [Linux] Documentation/trace/coresight/, Documentation/ABI/testing/sysfs-bus-coresight-devices-*.
void check_coresight(const Facts& facts, std::vector<Check>& checks);

}  // namespace ptd::doctor
