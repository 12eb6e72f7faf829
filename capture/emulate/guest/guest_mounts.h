// The first steps of the emulated machine: its modules, its file systems, and the change to the host's files as the root.
#pragma once

#include <string>

#include "capture/emulate/shared/guest_config.h"

namespace ptd::emulate::guest {

/// Descriptor of the folder that has what the machine changed in the host's files, for list_changed_files(), after exec too.
inline constexpr int kUpperFd = 100;

/// Mounts procfs, sysfs and devtmpfs, and loads the modules of the initramfs.
void prepare_devices();
/// Makes the host's files the root: read-only, below a layer in memory that takes changes. Returns false after reporting why.
bool enter_host_root(const GuestConfig& config);
/// Brings up the loopback interface.
void start_loopback();
/// Returns the paths of the files that differ from the host's, a line each.
[[nodiscard]] std::string list_changed_files();

}  // namespace ptd::emulate::guest
