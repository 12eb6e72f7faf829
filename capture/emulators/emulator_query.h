// Finds an emulator that `record --emulate` can use: a qemu of the right machine that loads plugins.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ptd::emulators {

/// An emulated machine.
enum class MachineArch : uint8_t { x86_64, arm64 };
/// Returns the name of the program that emulates whole machines: "qemu-system-x86_64".
[[nodiscard]] const char* system_emulator(MachineArch arch);

enum class Fitness : uint8_t {
  works,
  missing,        ///< no such program, or it cannot be run
  no_answer,      ///< it did not print its help: it hangs, crashes or is another program
  other_machine,  ///< it emulates another machine
  no_plugins,     ///< it was built without plugins, as static builds are
  too_old,        ///< its plugins cannot read registers: a qemu-system before 9.2
};

struct Emulator {
  std::string path;
  Fitness fitness = Fitness::missing;
  std::string found;  ///< one clause about it: "PATH was built without plugins"
};

/// What is looked for and where.
struct EmulatorSearch {
  std::string name;                           ///< "qemu-x86_64", "qemu-system-x86_64": also the machine that its help must name
  std::string given;                          ///< a path, or a name in PATH; "": search PATH, then `built`
  std::string path;                           ///< folders with colons between them, as PATH has them
  std::string built;                          ///< the folder of built emulators; "": none
  std::chrono::milliseconds most_time{5000};  ///< per program
};

/// Runs the program for its help.
[[nodiscard]] Emulator query_emulator(const std::string& path, const std::string& name, std::chrono::milliseconds most_time);

/// All candidates in the order of preference, each with its answer; ends at the first that works unless `all`.
[[nodiscard]] std::vector<Emulator> find_emulators(const EmulatorSearch& search, bool all = false);

/// The first that works, else the first that exists, else one that says that it is missing.
[[nodiscard]] Emulator choose_emulator(const EmulatorSearch& search);

/// The folder of this user's built emulators: ptdecode-emulators in $XDG_CACHE_HOME or ~/.cache; "" if neither is known.
[[nodiscard]] std::string built_emulators();

/// The folders of fetched kernels in it, the newest first: each has boot/ and lib/modules/. Ignores those that other users can change.
[[nodiscard]] std::vector<std::string> list_fetched_kernels(const std::string& folder);

/// The folders of finished builds and fetched emulators in it, by name. Ignores those that other users can change.
[[nodiscard]] std::vector<std::string> list_built(const std::string& folder);

}  // namespace ptd::emulators
