// Downloads what `record --emulate=system` needs, without root rights, into the user's cache.
#pragma once

#include <string>
#include <vector>

#include "capture/emulators/emulator_query.h"
#include "capture/emulators/step_runner.h"
#include "ptdecode/error.h"

namespace ptd::emulators {

/// The download ends with `cancelled` and leaves no files if `stop` requests it.
struct FetchOptions : StepWatch {
  std::string folder;  ///< of all emulators: built_emulators()
  MachineArch machine = MachineArch::x86_64;
  bool kernel = true;                            ///< the kernel of the installed release
  bool emulator = true;                          ///< qemu-system-x86_64 or -aarch64, with the libraries that this machine does not have
  uint64_t needed_bytes = uint64_t{1200} << 20;  ///< of free disk space: for the packages and their files
};

/// Returns the folders that were made: linux-image-RELEASE with boot/ and lib/modules/, qemu-system-x86-VERSION or qemu-system-arm-VERSION
/// with a script that runs the unpacked program. Packages come from the repositories of apt's configuration, and from Debian's backports if
/// the release's own QEMU is older than 9.2; apt accepts only those whose checksum is in a signed list. Errors: missing_program, busy,
/// no_space, cancelled, start_failed as build_emulator(); unsupported if no repository has a QEMU that can be used, or a kernel for the
/// machine.
[[nodiscard]] Result<std::vector<std::string>> fetch_for_system(const FetchOptions& options);

/// A package of `apt-get install --print-uris`, to be downloaded.
struct ListedPackage {
  std::string name, version, architecture;
};
[[nodiscard]] std::vector<ListedPackage> packages_in(const std::string& text);

}  // namespace ptd::emulators
