// Privileges that programs get from their files (setuid, setgid, capabilities) but do not have in the emulator.
#pragma once

#include <string>
#include <vector>

namespace ptd::emulate {

/// A sentence for each file, of those mapped (by path), whose program would have run with other rights than this process's. qemu-user is
/// the program that the kernel starts, so the rights of the program that it emulates are not given.
[[nodiscard]] std::vector<std::string> lost_privileges(const std::vector<std::string>& mapped);

}  // namespace ptd::emulate
