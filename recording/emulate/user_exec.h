// execve under the emulator: the new program must be emulated too.
#pragma once

#include <cstdint>
#include <string>

namespace ptd::emulate {

/// What is needed to start the emulator again.
struct EmulatorCommand {
  std::string qemu;      ///< path of the emulator
  std::string plugin;    ///< path of this plugin
  std::string folder;    ///< the working folder
  uint16_t machine = 0;  ///< whose programs it runs: an ELF machine
};

/// ELF machines that can be emulated.
inline constexpr uint16_t kMachineX86_64 = 62, kMachineAarch64 = 183;

enum class ExecKind : unsigned char {
  refused,   ///< the system will refuse it: let it say so itself
  emulated,  ///< a program of the emulated machine, or a script that one runs
  foreign,   ///< another kind of program, which runs outside the emulator
};

/// The machine of the 64-bit program that execve(path, ...) would run; 0 for anything else.
[[nodiscard]] uint16_t machine_of(const std::string& path);
/// What execve(path, ...) would run, seen from an emulator of `machine`.
[[nodiscard]] ExecKind exec_kind(const std::string& path, uint16_t machine);
/// Name of the emulator of a machine.
[[nodiscard]] const char* emulator_of(uint16_t machine);
/// Starts the emulator on it, in this process; returns only if that fails. argv and envp are the program's own.
void exec_emulated(const EmulatorCommand& command, const std::string& path, char* const* argv, char* const* envp);

}  // namespace ptd::emulate
