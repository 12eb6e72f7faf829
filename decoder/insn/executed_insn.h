// executed_insn(): instructions of code that the flow passed. Private to the project.
#pragma once

#include <algorithm>

#include "ptdecode/arm_insn.h"
#include "ptdecode/insn.h"

namespace ptd {

/// classify() of code that the flow has reached. As many zero bytes as the longest x86 instruction has are no code (cls bad), though each
/// two of them are `add %al, (%rax)`: files are padded with zeros, and pages that were not saved have them.
[[nodiscard]] inline Insn reached_insn(Bytes bytes, ExecMode mode) {
  constexpr size_t kMost = 15;
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (bytes.size() >= kMost && is_zero(bytes[0]) && !is_arm(mode) && std::all_of(bytes.begin(), bytes.begin() + kMost, is_zero)) return {};
  return classify(bytes, mode);
}

/// classify(), but a word that is no Arm instruction (cls bad) has its length: the decoder may pass some of these, with a mark.
[[nodiscard]] inline Insn executed_insn(Bytes bytes, ExecMode mode) {
  Insn insn = classify(bytes, mode);
  if (insn.length_bytes == 0 && is_arm(mode)) insn.length_bytes = classify_arm(bytes, mode).length_bytes;
  return insn;
}

}  // namespace ptd
