// The hand-written kernel of the demonstration: code, symbols, and the sites that get patched. For tests only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/demo/machine.h"

namespace ptd::demo {

inline constexpr uint64_t kTextBase = 0xffffffff81000000, kTextBytes = 0x1000;
inline constexpr uint64_t kModuleBase = 0xffffffffc0201000, kModuleBytes = 0x1000;
inline constexpr uint64_t kTrampoline = 0xffffffffc0204000, kTrampolineBytes = 0x40;  ///< of ftrace
inline constexpr uint64_t kSlotPage = 0xffffffffc0206000, kTemplatePage = 0xffffffffc0208000, kSlotPageBytes = 0x1000;
inline constexpr uint64_t kCallPending = 0xffffffff81400000;  ///< data: a cpu has a request to run do_sync_core
inline constexpr uint64_t kMorePokes = 0xffffffff81400008;    ///< data: another site of the batch follows
inline constexpr uint64_t kGracePending = 0xffffffff81400010;
inline constexpr uint64_t kHasWork = 0x10;  ///< per-cpu data: the worker has something to call

struct KernelSection {
  uint64_t base = 0;
  std::vector<std::byte> code;
};

struct Kernel {
  Assembler::Labels labels;  ///< functions, and with a dot places inside of them: "hot_keys.key_site"
  KernelSection text, module;
  [[nodiscard]] uint64_t at(const std::string& label) const { return labels.at(label); }
};

/// False if the program contradicts itself.
[[nodiscard]] bool build_kernel(Kernel& kernel);

/// CALL or JMP rel32 from `site` to `target`; a NOP of five bytes.
[[nodiscard]] std::vector<std::byte> call_to(uint64_t site, uint64_t target);
[[nodiscard]] std::vector<std::byte> jump_to(uint64_t site, uint64_t target);
[[nodiscard]] std::vector<std::byte> nop5();

}  // namespace ptd::demo
