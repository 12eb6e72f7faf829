// Safe opening of regular files that a recording names.
#pragma once

#include <string>

#include "image/base/fd.h"

namespace ptd {

/// Why a file that a recording names is not read, and what reads it.
inline constexpr const char* kOutsideReason = "outside the recording's folder (--allow-outside reads it)";

/// A regular file open for reading, or why it is not.
struct RegularFile {
  Fd fd;
  int error = 0;         ///< errno; EINVAL: not a regular file
  bool outside = false;  ///< the path leads out of the folder

  [[nodiscard]] std::string why() const;  ///< for people; of a file that is not open
};

/// Opens `path` if it is a regular file. Never opens a device, a FIFO or a socket, whose open() may block or have effects.
[[nodiscard]] RegularFile open_regular(const std::string& path);
/// As open_regular(), but follows no link of procfs to what a process has open.
[[nodiscard]] RegularFile open_recorded(const std::string& path);
/// Opens the regular file `name`, a path relative to `folder` or an absolute one, if it and every link on the way to it stay in `folder`.
/// The kernel checks this while it resolves the path, so a concurrent rename cannot lead out.
[[nodiscard]] RegularFile open_beneath(const std::string& folder, const std::string& name);

/// The part of `path` below `folder`; "" if it is not below it by name.
[[nodiscard]] std::string name_below(const std::string& folder, const std::string& path);

}  // namespace ptd
