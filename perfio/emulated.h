// Identifies recordings that were made by an emulator.
#pragma once

#include <cstdint>
#include <string_view>

namespace ptd::perfio {

/// CPUDESC of such recordings. Their trace and their records have one clock.
inline constexpr const char* kEmulatedCpu = "emulated by QEMU";

/// Whether the description of a recording, also of a bundle, names that cpu.
[[nodiscard]] inline bool is_emulated(std::string_view description) { return description.find(kEmulatedCpu) != std::string_view::npos; }

/// PERF_AUXTRACE_ERROR_ITRACE, the type of an AUXTRACE_ERROR record, and the code of those that name a process which could not be recorded.
inline constexpr uint32_t kAuxtraceErrorItrace = 1, kNotRecordedCode = 0x70746401;

}  // namespace ptd::perfio
