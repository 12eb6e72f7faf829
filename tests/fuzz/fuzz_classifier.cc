// Any bytes as an instruction, in every mode: length in bounds, and the answer depends on the instruction's own bytes only.
#include <algorithm>

#include "ptdecode/insn.h"
#include "tests/fuzz/check.h"

using namespace ptd;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const Bytes all = std::as_bytes(std::span(data, size));
  for (const ExecMode mode : {ExecMode::bits16, ExecMode::bits32, ExecMode::bits64, ExecMode::unknown}) {
    for (size_t at = 0; at < std::min<size_t>(size, 64); ++at) {
      const Bytes bytes = all.subspan(at);
      const Insn insn = classify(bytes, mode);
      if (insn.cls == InsnClass::bad) {
        PTD_FUZZ_CHECK(insn.length_bytes == 0);
        PTD_FUZZ_CHECK(!(needs_more_bytes(bytes, mode) && bytes.size() >= 15));
        continue;
      }
      PTD_FUZZ_CHECK(insn.length_bytes >= 1 && insn.length_bytes <= 15 && insn.length_bytes <= bytes.size());
      PTD_FUZZ_CHECK(classify(bytes.first(insn.length_bytes), mode) == insn);
      for (size_t cut = 0; cut < insn.length_bytes; ++cut) PTD_FUZZ_CHECK(classify(bytes.first(cut), mode).cls == InsnClass::bad);
      PTD_FUZZ_CHECK(!needs_more_bytes(bytes, mode));
      (void)direct_target(insn, Ip{0x401000}, mode);
      PTD_FUZZ_CHECK(mode == ExecMode::bits16 || next_sequential(insn, Ip{0x401000}, mode).value == 0x401000U + insn.length_bytes);
    }
  }
  return 0;
}
