// A JIT that loads, moves, patches and unloads functions in places that it reuses: the Intel PT packets, the timeline, and every
// instruction that ran.
#pragma once

#include <string>
#include <vector>

#include "ptdecode/timeline.h"
#include "tests/support/ran.h"

namespace ptd::test {

struct JitOptions {
  uint64_t seed = 1;
  uint32_t places = 4;
  uint32_t tests = 8;  ///< the most conditional branches of a function
  uint32_t changes = 40;
  uint32_t calls = 2;           ///< the most between two changes
  uint32_t ticks = 10;          ///< of the clock between two instructions, at most
  uint32_t tsc_every = 0;       ///< about one TSC packet in so many instructions; 0: only at PSBs
  uint32_t psb_every = 200;     ///< instructions
  uint32_t overflow_every = 0;  ///< about one overflow in so many instructions; 0: none
  bool return_compression = false;
  bool exact_only = false;  ///< decode with the exact walker
};
/// Returns a mixture of all options, determined by the seed.
[[nodiscard]] JitOptions jit_options_of_seed(uint64_t seed);
[[nodiscard]] std::string describe(const JitOptions& options);

struct JitRun {
  Timeline timeline;  ///< its times are TSCs
  std::vector<std::byte> trace;
  std::vector<Ran> truth;
  uint64_t changes = 0;
};
[[nodiscard]] JitRun run_jit(const JitOptions& options);

}  // namespace ptd::test
