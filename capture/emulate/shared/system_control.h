// How a program in an emulated machine controls the tracer: instructions without effect, which the tracer recognises.
#pragma once

#include <cstdint>

namespace ptd::emulate {

/// x86-64: long NOPs with a displacement that no compiler writes, 0f 1f 80 CC 'D' 'T' 'P'; RAX is the command's argument. A64: MOVZ XZR
/// with a value that no compiler writes, and without an argument.
enum class SystemCommand : uint8_t {
  start = 1,  ///< trace all cpus from here on; argument: address of the interrupt descriptor table (SIDT)
  stop = 2,   ///< end the trace of all cpus
};
inline constexpr uint32_t kControlTag = 0x50544400;   // x86-64: the displacement without the command
inline constexpr uint32_t kControlMovz = 0xd2ea881f;  // A64: movz xzr, #0x5440, lsl #48; the command is in bits 5 to 8

#if defined(__aarch64__)
inline void tell_tracer_start(uint64_t) { asm volatile(".inst %c0" : : "i"(kControlMovz | 1U << 5) : "memory"); }
inline void tell_tracer_stop() { asm volatile(".inst %c0" : : "i"(kControlMovz | 2U << 5) : "memory"); }
#else
inline void tell_tracer_start(uint64_t idt) { asm volatile("nopl %c1(%%rax)" : : "a"(idt), "i"(kControlTag | 1) : "memory"); }
inline void tell_tracer_stop() { asm volatile("nopl %c1(%%rax)" : : "a"(0), "i"(kControlTag | 2) : "memory"); }
#endif

}  // namespace ptd::emulate
