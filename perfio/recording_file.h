// Opens the file of a recording: a regular file, or a pipe spooled into an unlinked temporary file.
#pragma once

#include <memory>
#include <string>

#include "image/base/mapped_file.h"
#include "ptdecode/error.h"

namespace ptd::perfio {

/// Maps the file at `path` without reading it, so a recording of any size costs address space only. "-" is standard input; if that is a
/// pipe, the copy replaces it, so that it can be opened again. What cannot be mapped (pipe, socket, FIFO) is spooled to $TMPDIR (default
/// /tmp); if its first bytes are not those of a recording, the rest is not read. The copy leaves 1 GiB of the file system free, or a
/// twentieth of it if that is less: an input that never ends is an error. Calls check_interrupt(). Errors: file_open; no_space.
Result<std::shared_ptr<const MappedFile>> open_recording_file(const std::string& path);

/// Returns how messages name the file at `path`: "standard input" for "-".
[[nodiscard]] inline std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

}  // namespace ptd::perfio
