// Builds qemu-user with plugins from the distribution's source package, into the user's cache.
#pragma once

#include <cstdint>
#include <string>

#include "capture/emulators/step_runner.h"
#include "ptdecode/error.h"

namespace ptd::emulators {

/// The build ends with `cancelled` and leaves no files if `stop` requests it.
struct BuildOptions : StepWatch {
  std::string folder;                         ///< of all builds: built_emulators()
  unsigned jobs = 0;                          ///< compilers at once; 0: one per cpu
  uint64_t needed_bytes = uint64_t{2} << 30;  ///< of free disk space: for the source package, its files, objects and programs
};

struct BuiltEmulator {
  std::string folder;   ///< has qemu-x86_64 and qemu-aarch64
  std::string version;  ///< of the source package
};

/// Downloads the source package `qemu` of the installed release from the repositories of apt's configuration, checks it, and builds it. apt
/// accepts only a source that the signed list of the repository names with its checksum, and dpkg-source the files that the .dsc names.
/// Needs no root rights and changes nothing outside `folder`. Takes minutes and 2 GB while it runs. An unfinished build leaves only
/// `folder`/build.log, and a finished one of the same version is replaced. Errors: missing_program names the packages to install; busy
/// while another build runs; no_space before anything is downloaded; cancelled; start_failed names the step that failed, its first
/// complaint, and the log.
[[nodiscard]] Result<BuiltEmulator> build_emulator(const BuildOptions& options);

/// Removes one build (the name of its folder), or all if `name` is empty, and what interrupted builds left. Returns the number of removed
/// builds. Errors: not_found; busy while a build runs; of the file system.
[[nodiscard]] Result<size_t> remove_built(const std::string& folder, const std::string& name);

}  // namespace ptd::emulators
