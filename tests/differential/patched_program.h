// A kernel that patches its code while it runs: the Intel PT packets, the changes, and every instruction with the bytes that ran.
#pragma once

#include <string>
#include <vector>

#include "ptdecode/edit.h"
#include "tests/differential/program.h"
#include "tests/support/ran.h"

namespace ptd::test {

struct PatchedOptions {
  uint64_t seed = 1;
  uint32_t functions = 4, slots = 6;  ///< of each function, before its RET
  uint32_t site_percent = 40;         ///< of the slots are patched
  uint32_t steps = 600;               ///< instructions
  uint32_t patches = 12;
  uint32_t tsc_every = 0;    ///< about one TSC packet in so many instructions; 0: only at PSBs
  uint32_t psb_every = 200;  ///< instructions
  bool return_compression = false;
  bool exact_only = false;  ///< decode with the exact walker
};
/// Returns a mixture of all options, determined by the seed.
[[nodiscard]] PatchedOptions patched_options_of_seed(uint64_t seed);
[[nodiscard]] std::string describe(const PatchedOptions& options);

struct PatchedRun {
  uint64_t base = 0;
  std::vector<std::byte> code;  ///< at `base`, before the first change
  std::vector<Edit> edits;      ///< by time, which is the TSC
  std::vector<std::byte> trace;
  std::vector<Ran> truth;
};
[[nodiscard]] PatchedRun run_patched(const PatchedOptions& options);

}  // namespace ptd::test
