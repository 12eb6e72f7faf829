// Identifies recordings that were made by an emulator.
#pragma once

#include <cstdint>
#include <string_view>

namespace ptd::perfio {

/// CPUDESC of such recordings. Their trace and their records have one clock.
inline constexpr const char* kEmulatedCpu = "emulated by QEMU";

/// Whether the description of a recording, also of a bundle, names that cpu.
[[nodiscard]] inline bool is_emulated(std::string_view description) { return description.find(kEmulatedCpu) != std::string_view::npos; }

/// PERF_AUXTRACE_ERROR_ITRACE, the type of an AUXTRACE_ERROR record, and the codes of those that name a process which could not be
/// recorded, and that name a mapping (process, address, time) whose file was written to while the recording was made.
inline constexpr uint32_t kAuxtraceErrorItrace = 1, kNotRecordedCode = 0x70746401, kRewrittenCode = 0x70746402;

}  // namespace ptd::perfio
