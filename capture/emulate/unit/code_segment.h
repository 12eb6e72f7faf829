// Code segments of x86-64 Linux: which mode their code runs in.
#pragma once

#include <cstdint>

#include "ptdecode/types.h"

namespace ptd::emulate {

// Selectors in CS: Linux, arch/x86/include/asm/segment.h.
inline constexpr uint64_t kKernelCode = 0x10, kUserCode = 0x33, kUserCode32 = 0x23;

/// The mode of the code at `ip` that runs with the selector `segment()` in CS. That is a register to read, and not asked for above 4 GiB,
/// where no 32-bit code is. Unknown: of a segment that the program made (modify_ldt), whose descriptor says whether it is 32-bit or 16-bit.
template <class Segment>
ExecMode mode_of_code(uint64_t ip, const Segment& segment) {
  if (ip > 0xffffffff) return ExecMode::bits64;
  const uint64_t selector = segment();
  if (selector == kKernelCode || selector == kUserCode) return ExecMode::bits64;
  return selector == kUserCode32 ? ExecMode::bits32 : ExecMode::unknown;
}

}  // namespace ptd::emulate
