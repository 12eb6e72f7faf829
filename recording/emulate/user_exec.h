// execve under the emulator: the new program must be emulated too.
#pragma once

#include <string>

namespace ptd::emulate {

/// What is needed to start the emulator again.
struct EmulatorCommand {
  std::string qemu;    ///< path of the emulator
  std::string plugin;  ///< path of this plugin
  std::string folder;  ///< the working folder
};

enum class ExecKind : unsigned char {
  refused,   ///< the system will refuse it: let it say so itself
  emulated,  ///< an x86-64 program, or a script that one runs
  foreign,   ///< another kind of program, which runs outside the emulator
};

/// What execve(path, ...) would run.
[[nodiscard]] ExecKind exec_kind(const std::string& path);
/// Starts the emulator on it, in this process; returns only if that fails. argv and envp are the program's own.
void exec_emulated(const EmulatorCommand& command, const std::string& path, char* const* argv, char* const* envp);

}  // namespace ptd::emulate
