// System calls that qemu-user refuses although Linux has them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace ptd::emulate {

/// A system call that returned.
struct ReturnedCall {
  uint16_t machine = 0;  ///< an ELF machine
  int64_t number = 0;
  std::array<uint64_t, 6> args{};
  int64_t result = 0;
};

/// Returns a short description of a call that the emulator refused. "" if it did not, if Linux refuses the call too, or if it is one that C
/// libraries and runtimes try, and do without.
[[nodiscard]] std::string refused_call(const ReturnedCall& call);

}  // namespace ptd::emulate
