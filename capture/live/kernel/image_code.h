// The code of a BPF program, trampoline or dispatcher, in what was read from its memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ptd::live {

/// Returns the code in `bytes`, read from the address of a KSYMBOL record and as long as it says; nothing if part of the memory has been freed since, and
/// so may be another program's. The kernel fills free memory of programs on x86 with 0xCC. Since Linux 6.9, a trampoline has 64 bytes of it after its code:
/// the kernel allocates memory for more code than it generates ([Linux] 6.12 arch/x86/net/bpf_jit_comp.c, BPF_INSN_SAFETY).
[[nodiscard]] inline std::vector<std::byte> image_code(std::vector<std::byte> bytes, bool program) {
  constexpr std::byte kFree{0xcc};
  constexpr std::ptrdiff_t kMostUnused = 64;
  constexpr int kFreeRun = 4;  // no compiled program has that many
  const auto end = std::find_if(bytes.rbegin(), bytes.rend(), [](std::byte one) { return one != kFree; }).base();
  if (!program && bytes.end() - end <= kMostUnused) bytes.erase(end, bytes.end());
  if (std::search_n(bytes.begin(), bytes.end(), kFreeRun, kFree) != bytes.end()) return {};
  return bytes;
}

}  // namespace ptd::live
