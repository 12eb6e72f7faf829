// How a CoreSight flow is followed, beside the configuration of its trace source.
#pragma once

#include "image/base/time_conversion.h"

namespace ptd::arm {

/// How context packets name the software that runs.
enum class ContextNames : uint8_t {
  none,        ///< they do not: a raw capture; user code belongs to the default space
  context_id,  ///< CONTEXTIDR_EL1 holds the thread id, as Linux writes it (CONFIG_PID_IN_CONTEXTIDR)
  vmid,        ///< CONTEXTIDR_EL2, in the VMID field: Linux running at EL2
};

struct FollowOptions {
  ContextNames names = ContextNames::none;
  SpaceId default_space = kNoSpace;             ///< of lower-half addresses while nothing tells which thread runs
  TimeConversion time;                          ///< of timestamps; invalid: raw ticks
  bool use_time = true;                         ///< false: timestamps are of another clock than the timeline's, and tell nothing of it
  uint64_t slack_ns = 0;                        ///< widens every time interval on both sides
  bool exact_only = false;                      ///< atoms one by one: the same output, slower
  uint64_t max_silent_instructions = 1U << 20;  ///< walked without a packet; beyond: Gap limit
};

}  // namespace ptd::arm
