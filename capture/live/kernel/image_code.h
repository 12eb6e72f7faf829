// The code of a BPF program, trampoline or dispatcher, in what was read from its memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ptd::live {

/// Returns the code in `bytes`, read from the address of a KSYMBOL record and as long as it says; nothing if the memory has been freed
/// since. The kernel fills free memory of programs on x86 with 0xCC. A program whose bytes hold free memory is gone, at least in part, and
/// may be another one by now. The code of a trampoline or dispatcher ends where free memory begins: its record says that it takes a page,
/// but since Linux 6.9 trampolines share pages, each followed by 64 free bytes ([Linux] 6.12 arch/x86/net/bpf_jit_comp.c,
/// arch_alloc_bpf_trampoline(), BPF_INSN_SAFETY).
[[nodiscard]] inline std::vector<std::byte> image_code(std::vector<std::byte> bytes, bool program) {
  constexpr std::byte kFree{0xcc};
  constexpr int kFreeRun = 4;  // no compiled program has that many
  const auto free = std::search_n(bytes.begin(), bytes.end(), kFreeRun, kFree);
  if (program && free != bytes.end()) return {};
  bytes.erase(free, bytes.end());
  return bytes;
}

}  // namespace ptd::live
