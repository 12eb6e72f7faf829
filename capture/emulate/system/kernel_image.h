// KernelImage: the kernel that an emulated machine boots, and its modules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/emulators/emulator_query.h"
#include "ptdecode/error.h"

namespace ptd::emulate {

struct KernelImage {
  std::string path;     ///< of the bzImage or, for arm64, of the Image
  std::string release;  ///< "6.1.0-44-amd64"
  std::string modules;  ///< folder of its modules
};

struct KernelSearch {
  std::string given;                 ///< path of an image; "": search
  std::string running;               ///< release of the running kernel, the preferred one
  std::vector<std::string> folders;  ///< with vmlinuz-RELEASE files, in the order of preference
  emulators::MachineArch arch = emulators::MachineArch::x86_64;
};

/// Searches /boot, and below the folder of built emulators what `ptdecode emulator fetch` has unpacked.
[[nodiscard]] KernelSearch default_kernel_search(const std::string& given, emulators::MachineArch arch = emulators::MachineArch::x86_64);

/// Returns the given image, else the running kernel's, else the newest one of the first folder that has a usable one. Errors: bad_option
/// for a given image that is none, missing_part without modules; missing_program names what helps if there is none.
[[nodiscard]] Result<KernelImage> find_kernel(const KernelSearch& search);

/// Returns the release of a kernel image, or "" for other files. A bzImage has it in its header ([Linux] Documentation/arch/x86/boot.rst,
/// kernel_version), an arm64 Image (Documentation/arm64/booting.rst) in its banner. For a compressed arm64 Image, it is in the file name,
/// vmlinuz-RELEASE.
[[nodiscard]] std::string release_of_image(const std::string& path, emulators::MachineArch arch = emulators::MachineArch::x86_64);

/// The files of the modules that the machine needs before it has the host's files, in the order of loading. Errors: unsupported if the
/// kernel has no driver for them.
[[nodiscard]] Result<std::vector<std::string>> early_modules(const KernelImage& kernel,
                                                             emulators::MachineArch arch = emulators::MachineArch::x86_64);

}  // namespace ptd::emulate
