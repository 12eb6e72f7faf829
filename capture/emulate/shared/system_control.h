// How a program in an emulated machine controls the tracer: instructions without effect, which the tracer recognises.
#pragma once

#include <cstdint>

namespace ptd::emulate {

/// Long NOPs with a displacement that no compiler writes: 0f 1f 80 CC 'D' 'T' 'P'. RAX is the command's argument.
enum class SystemCommand : uint8_t {
  start = 1,  ///< trace all cpus from here on; argument: address of the interrupt descriptor table (SIDT)
  stop = 2,   ///< end the trace of all cpus
};
inline constexpr uint32_t kControlTag = 0x50544400;  // the displacement without the command

inline void tell_tracer_start(uint64_t idt) { asm volatile("nopl %c1(%%rax)" : : "a"(idt), "i"(kControlTag | 1) : "memory"); }
inline void tell_tracer_stop() { asm volatile("nopl %c1(%%rax)" : : "a"(0), "i"(kControlTag | 2) : "memory"); }

}  // namespace ptd::emulate
