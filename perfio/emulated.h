// What recordings that an emulator made are known by.
#pragma once

namespace ptd::perfio {

/// CPUDESC of such recordings. Their trace and their records have one clock.
inline constexpr const char* kEmulatedCpu = "emulated by QEMU";

}  // namespace ptd::perfio
