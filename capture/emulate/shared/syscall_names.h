// Names of Linux's system calls.
#pragma once

#include <cstdint>
#include <string>

namespace ptd::emulate {

/// Returns the name of a system call of an ELF machine; "system call N" for a number that is newer than the list of names; "" if no Linux
/// has such a call.
[[nodiscard]] std::string syscall_name(uint16_t machine, int64_t number);

}  // namespace ptd::emulate
