// A made program whose code is poked many times while it runs, without another flow: what versions cost.
#pragma once

#include "ptdecode/pt/decoder.h"
#include "tests/support/corpus.h"
#include "tests/support/flow.h"

namespace ptd::bench {

enum class PokePlace : uint8_t {
  cold,  ///< beside the program, in a separate section: never fetched
  near,  ///< in the program's section, after its last instruction
  hot,   ///< numbers in its instructions (mov eax, imm32), each site in turn
};

/// The machine of `memory` (one piece of made code) with `count` edits, evenly over `time`.
[[nodiscard]] test::Machine make_poked_machine(const test::SparseMemory& memory, PokePlace place, uint64_t count, Interval time);

/// From the first moment known to the last of a decode.
[[nodiscard]] Interval time_of(const std::vector<AuxSegment>& segments, const test::Machine& machine, const pt::DecoderOptions& options);

}  // namespace ptd::bench
