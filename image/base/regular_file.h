// Safe opening of regular files that a recording names.
#pragma once

#include <string>

#include "image/base/fd.h"
#include "ptdecode/error.h"

namespace ptd {

/// The reason for not reading a file that a recording names, with the option that allows it.
inline constexpr const char* kOutsideReason = "outside the recording's folder (--allow-outside reads it)";

/// A regular file open for reading, or why it is not.
struct RegularFile {
  Fd fd;
  int error = 0;         ///< errno; EISDIR, EINVAL: a directory, or another kind of file
  bool outside = false;  ///< the path leads outside the folder

  [[nodiscard]] ErrorCode code() const;   ///< of a file that is not open
  [[nodiscard]] std::string why() const;  ///< message for a file that is not open
};

/// Opens `path` if it is a regular file. Never opens a device, a FIFO or a socket, whose open() may block or have effects.
[[nodiscard]] RegularFile open_regular(const std::string& path);
/// Same as open_regular(), but does not follow procfs links to open files of processes.
[[nodiscard]] RegularFile open_recorded(const std::string& path);
/// Opens the regular file `name`, a path relative to `folder` or an absolute one, if it and every link in the path stay inside `folder`.
/// The kernel checks this while it resolves the path, so a concurrent rename cannot escape.
[[nodiscard]] RegularFile open_beneath(const std::string& folder, const std::string& name);

/// Returns the part of `path` below `folder`, "" if the path does not start with `folder`.
[[nodiscard]] std::string name_below(const std::string& folder, const std::string& path);

}  // namespace ptd
