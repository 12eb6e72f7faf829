// A generated program whose code is poked many times while it runs, without a change of the flow: the cost of versions.
#pragma once

#include "ptdecode/pt/decoder.h"
#include "tests/support/corpus.h"
#include "tests/support/flow.h"

namespace ptd::bench {

enum class PokePlace : uint8_t {
  cold,  ///< in a separate section, never fetched
  near,  ///< in the program's section, after its last instruction
  hot,   ///< numbers in its instructions (mov eax, imm32), each site in turn
};

/// Returns the machine of `memory` (one range of generated code) with `count` edits, evenly distributed over `time`.
[[nodiscard]] test::Machine make_poked_machine(const test::SparseMemory& memory, PokePlace place, uint64_t count, Interval time);

/// Returns the time from the first known to the last known time of a decode.
[[nodiscard]] Interval time_of(const std::vector<AuxSegment>& segments, const test::Machine& machine, const pt::DecoderOptions& options);

}  // namespace ptd::bench
