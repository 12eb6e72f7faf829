// A generated program of one character and its trace: structured code whose branches behave like those of real programs, tens of millions
// of instructions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/pt/config.h"
#include "tests/support/corpus.h"

namespace ptd::bench {

/// Shares are percentages of the statements; the rest is straight-line code.
struct Character {
  std::string name;
  uint32_t functions = 200, statements = 24;
  uint32_t ifs = 0, loops = 0, calls = 0, indirect_calls = 0, switches = 0;
  uint32_t hard_branches = 10;  ///< percentage of branches with a random direction; the others are biased 97 to 3
  uint32_t loop_rounds = 12;    ///< on average
  uint32_t straight = 5;        ///< maximum number of instructions between branches
  bool cyc = false;             ///< CYC packets in addition to MTC
};
/// tnt: branches and loops; hard: unpredictable branches; loop: nested loops; call: small functions; tip: indirect calls and switches.
[[nodiscard]] std::vector<Character> characters();

struct Synthetic {
  test::SparseMemory memory;
  std::vector<std::byte> trace;
  pt::Config config;
  uint64_t instructions = 0, branches = 0, tips = 0;
};
/// Runs the program until `instructions` were executed. The result is the same for the same arguments.
[[nodiscard]] Synthetic make_synthetic(const Character& character, uint64_t instructions, uint64_t seed);

}  // namespace ptd::bench
