// Writes snapshots of sessions to files.
#pragma once

#include <string>

#include "ptdecode/error.h"

namespace ptd::live {

/// Copies the content of the memory file `memory` to `output` ("-": standard output). A file is written under another name first, so it
/// appears completely or not at all. Errors: those of the file system.
[[nodiscard]] Status save_snapshot(int memory, const std::string& output);

}  // namespace ptd::live
