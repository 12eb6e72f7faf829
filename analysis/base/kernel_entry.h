// How a kernel is entered at a function, by the function's name.
#pragma once

#include <cstdint>
#include <string_view>

namespace ptd {

enum class KernelEntry : uint8_t { none, syscall, interrupt };

/// Returns what enters Linux on x86 at the function `name`; none if nothing does. Since Linux 5.8 the entries for interrupts and exceptions
/// begin with "asm_" (arch/x86/include/asm/idtentry.h), before they have the names of arch/x86/entry/entry_64.S.
[[nodiscard]] KernelEntry kernel_entry(std::string_view name);

}  // namespace ptd
