// execve in the emulator: the new program must be emulated too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// The first 256 bytes of a file, or what it has of them; "" if it cannot be read.
[[nodiscard]] std::string head_of(const std::string& path);
/// The machine of the 64-bit program that execve(path, ...) would run; 0 for anything else.
[[nodiscard]] uint16_t machine_of(const std::string& path);
/// The interpreter that a script or a program of this machine names and that cannot be run, also that of an interpreter; "" if there is no
/// such thing.
[[nodiscard]] std::string missing_interpreter(const std::string& path);
/// The dynamic linker that the program which execve(path, ...) would run asks for, if it is neither on this machine nor below
/// QEMU_LD_PREFIX; else "".
[[nodiscard]] std::string missing_linker(const std::string& path);
/// What execve(path, ...) would run, seen from an emulator of `machine`.
[[nodiscard]] ExecKind exec_kind(const std::string& path, uint16_t machine);
/// Name of the emulator of a machine.
[[nodiscard]] const char* emulator_of(uint16_t machine);
/// Starts the emulator on it, in this process; returns only if that fails. `argv` is the program's own, and so is envp, which the system
/// reads.
void exec_emulated(const EmulatorCommand& command, const std::string& path, std::vector<std::string> argv, char* const* envp);
/// A path under which the emulator, which has no descriptor that is closed at an exec, finds what execveat(fd, path) means. Leaves a
/// duplicate of the descriptor open where what it shows has no name.
[[nodiscard]] std::string exec_path_of(int fd, const std::string& path);

}  // namespace ptd::emulate
