// GuestArchive: the initramfs of an emulated machine.
#pragma once

#include <string>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::emulate {

/// Writes an uncompressed newc archive ([Linux] Documentation/driver-api/early-userspace/buffer-format.rst): /init from `guest`, the
/// config, and /modules/NN-NAME in the order of `modules`. Errors: of the file system.
[[nodiscard]] Status write_guest_archive(const std::string& path, const std::string& guest, const std::string& config,
                                         const std::vector<std::string>& modules);

}  // namespace ptd::emulate
