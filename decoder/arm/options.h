// Options for following a CoreSight flow, besides the configuration of its trace source.
#pragma once

#include <array>

#include "ptdecode/time_conversion.h"

namespace ptd::arm {

/// How the current thread is known.
enum class ContextNames : uint8_t {
  none,        ///< not by context packets: a raw capture, whose user code belongs to the default space, or records of switches name it
  context_id,  ///< CONTEXTIDR_EL1 holds the thread id, as Linux writes it (CONFIG_PID_IN_CONTEXTIDR)
  vmid,        ///< CONTEXTIDR_EL2, in the VMID field: Linux running at EL2
  /// Not by context packets: the flow of a cpu up to an AUX record is of the thread that writes it, or of the one before that.
  aux_records,
};

/// Returns whether context packets name threads.
[[nodiscard]] constexpr bool has_ids(ContextNames names) { return names == ContextNames::context_id || names == ContextNames::vmid; }

/// Address spaces that a snapshot's dumps distinguish ("space=" of a dump): by exception level and security state. EL0 counts as EL1. ETMv3
/// and PTM report no level except the hypervisor's: any level of that state.
// clang-format off
enum class World : uint8_t {
  el1_secure, el1_non_secure, el2_non_secure, el3, el2_secure, el1_realm, el2_realm, root, any_secure, any_non_secure,
};
// clang-format on
inline constexpr size_t kWorlds = 10;

/// Maps an upper-half address to its address in the timeline if each space has its own upper half: one that no lower half uses.
[[nodiscard]] constexpr Ip lowered(Ip ip) { return Ip{ip.value & ~(uint64_t{1} << 63)}; }

struct FollowOptions {
  ContextNames names = ContextNames::none;
  SpaceId default_space = kNoSpace;                        ///< of lower-half addresses while the thread is unknown
  std::array<SpaceId, kWorlds> worlds = none_of_worlds();  ///< spaces of lower-half addresses by the world in context packets; kNoSpace:
                                                           ///< default_space
  bool own_upper = false;                                  ///< the worlds have different upper halves: each space holds its own at
                                                           ///< lowered() addresses
  TimeConversion time;                                     ///< of timestamps; invalid: raw ticks
  bool use_time = true;                         ///< false: timestamps come from a clock unrelated to the timeline's and are ignored
  uint64_t slack_ns = 0;                        ///< widens every time interval on both sides
  bool exact_only = false;                      ///< processes atoms one by one: the same output, slower
  uint64_t max_silent_instructions = 1U << 20;  ///< walked without a packet; beyond: Gap limit

  static constexpr std::array<SpaceId, kWorlds> none_of_worlds() {
    std::array<SpaceId, kWorlds> none{};
    none.fill(kNoSpace);
    return none;
  }
};

}  // namespace ptd::arm
