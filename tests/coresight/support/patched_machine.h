// A64 kernel code that is patched while it runs: its ETMv4 packets, the changes, and every instruction with the word that ran.
#pragma once

#include <string>
#include <vector>

#include "ptdecode/edit.h"
#include "tests/support/ran.h"

namespace ptd::test {

struct ArmPatchedOptions {
  uint64_t seed = 1;
  uint32_t functions = 4, slots = 6;  ///< of each function, before its RET
  uint32_t site_percent = 40;         ///< of the slots are patched
  uint32_t steps = 600;               ///< instructions
  uint32_t patches = 12;
  uint32_t timestamp_every = 0;       ///< about one timestamp in so many P0 instructions; 0: none
  uint32_t sync_every = 200;          ///< about one synchronisation in so many P0 instructions
  bool dated = true;                  ///< the changes have times; otherwise only their order is known, as between copies of memory
  bool return_stack = false;
  bool exact_only = false;            ///< decode atoms one by one
  uint32_t batch_blocks = 4096;
};
/// Returns a mixture of all options, determined by the seed.
[[nodiscard]] ArmPatchedOptions arm_patched_options_of_seed(uint64_t seed);
[[nodiscard]] std::string describe(const ArmPatchedOptions& options);

struct ArmPatchedRun {
  uint64_t base = 0;
  std::vector<std::byte> code;  ///< at `base`, before the first change
  std::vector<Edit> edits;      ///< in order; their time is that of the timestamps
  std::vector<std::byte> trace;
  std::vector<Ran> truth;
  Interval time;                ///< of the whole trace
};
[[nodiscard]] ArmPatchedRun run_arm_patched(const ArmPatchedOptions& options);

}  // namespace ptd::test
