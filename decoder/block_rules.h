// Rules that the blocks of all decoders share.
#pragma once

#include <cstdint>

#include "ptdecode/flow.h"
#include "ptdecode/timeline.h"

namespace ptd {

/// Maximum number of instructions in an Intel PT block.
inline constexpr uint16_t kMaxBlockInstructions = 4096;

/// Returns the flags of a block whose code has `flags`.
[[nodiscard]] constexpr uint16_t block_flags_of(CodeFlag flags) {
  uint16_t bits = 0;
  if (any(flags, CodeFlag::healed)) bits |= static_cast<uint16_t>(BlockFlag::healed);
  if (any(flags, CodeFlag::suspect)) bits |= static_cast<uint16_t>(BlockFlag::suspect);
  if (any(flags, CodeFlag::assumed)) bits |= static_cast<uint16_t>(BlockFlag::assumed);
  return bits;
}

/// Returns the flag of a block whose code is ambiguous, or 0.
[[nodiscard]] constexpr uint16_t ambiguous_flag(bool ambiguous) {
  return ambiguous ? static_cast<uint16_t>(BlockFlag::ambiguous) : uint16_t{0};
}

}  // namespace ptd
