// The decoded flow of a generated program, to be compared with the true path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/flow_decoder.h"
#include "ptdecode/timeline.h"
#include "tests/coresight/support/made_program.h"

namespace ptd::test {

/// What the trace tells: an instruction that ran, or an exception.
struct Told {
  bool exception = false;
  uint64_t address = 0;  ///< of an exception its preferred return address
  uint64_t number = 0;
  bool operator==(const Told&) const = default;
};

struct Decoded {
  std::vector<Told> told;
  size_t overflows = 0, other_gaps = 0, marked = 0;
  std::string first_gap;  ///< of the others
};

/// Adds what a batch tells.
void take(const Batch& batch, const BlockTable& blocks, Decoded& decoded);
/// Decodes one segment in batches of about `capacity` blocks.
Decoded decode_segment(FlowDecoder& decoder, const std::vector<uint8_t>& bytes, size_t capacity);
/// The program in its own space.
Timeline timeline_of(const MadeProgram& program, SpaceId& space);

}  // namespace ptd::test
