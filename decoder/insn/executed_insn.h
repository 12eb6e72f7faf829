// executed_insn(): instructions of code that the flow passed. Private to the project.
#pragma once

#include "ptdecode/arm_insn.h"
#include "ptdecode/insn.h"

namespace ptd {

/// classify(), but a word that is no Arm instruction (cls bad) has its length: the decoder may pass some of these, with a mark.
[[nodiscard]] inline Insn executed_insn(Bytes bytes, ExecMode mode) {
  Insn insn = classify(bytes, mode);
  if (insn.length_bytes == 0 && is_arm(mode)) insn.length_bytes = classify_arm(bytes, mode).length_bytes;
  return insn;
}

}  // namespace ptd
