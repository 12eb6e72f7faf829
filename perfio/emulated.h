// Identifies recordings that were made by an emulator.
#pragma once

namespace ptd::perfio {

/// CPUDESC of such recordings. Their trace and their records have one clock.
inline constexpr const char* kEmulatedCpu = "emulated by QEMU";

}  // namespace ptd::perfio
