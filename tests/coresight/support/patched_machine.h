// Code that is patched while it runs: its trace, the changes, and every instruction with the word that ran.
#pragma once

#include <string>
#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/edit.h"
#include "tests/support/ran.h"

namespace ptd::test {

struct ArmPatchedOptions {
  uint64_t seed = 1;
  arm::Protocol protocol = arm::Protocol::etmv4;  ///< ETMv4: A64 in the kernel half; PTM, ETMv3: A32
  uint32_t functions = 4, slots = 6;              ///< of each function, before its return
  uint32_t site_percent = 40;                     ///< of the slots are patched
  uint32_t steps = 600;                           ///< instructions
  uint32_t patches = 12;                          ///< moments at which a site, or a few, are patched
  uint32_t timestamp_every = 0;                   ///< about one timestamp in so many P0 instructions; 0: none
  uint32_t sync_every = 200;                      ///< about one synchronisation in so many P0 instructions
  uint32_t exception_every = 0;                   ///< about one exception in so many instructions; 0: none
  uint32_t speculation = 0;                       ///< ETMv4: P0 elements in flight
  bool dated = true;       ///< the changes have times; otherwise only their order is known, as between copies of memory
  bool time_known = true;  ///< the times of the trace's start and end are known
  bool return_stack = false;
  bool cycles = false;      ///< ETMv3: cycle-accurate
  bool exact_only = false;  ///< decode atoms one by one
  uint32_t batch_blocks = 4096;
  uint32_t max_flows = 16;  ///< ETMv4
};
/// Returns a mixture of all options, determined by the seed.
[[nodiscard]] ArmPatchedOptions arm_patched_options_of_seed(uint64_t seed, arm::Protocol protocol);
[[nodiscard]] std::string describe(const ArmPatchedOptions& options);
[[nodiscard]] arm::TraceConfig config_of(const ArmPatchedOptions& options);

struct ArmPatchedRun {
  uint64_t base = 0;
  std::vector<std::byte> code;  ///< at `base`, before the first change
  std::vector<Edit> edits;      ///< in order; their time is that of the timestamps
  std::vector<std::byte> trace;
  std::vector<Ran> truth;
  std::vector<uint64_t> exceptions;  ///< the address of the instruction before which each was taken
  Interval time;                     ///< of the whole trace
};
[[nodiscard]] ArmPatchedRun run_arm_patched(const ArmPatchedOptions& options);

}  // namespace ptd::test
