// MappingFile: opens the file that a running process has mapped, and proves that it is the recorded one.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "image/stash/stash_dir.h"

namespace ptd::stash {

/// A mapping, from a record or /proc/PID/maps.
struct ProcessMapping {
  int32_t pid = -1;
  uint64_t address = 0, size_bytes = 0;
  uint32_t maj = 0, min = 0;  ///< device of the file
  uint64_t inode = 0;         ///< 0: unknown
  std::string build_id;       ///< hex; the kernel records it instead of the inode
};

struct MappingFile {
  Fd fd;                ///< open for reading, if it is the recorded file
  struct stat info {};  ///< its metadata
  std::string why;      ///< the reason if it is not open
};

/// Opens the file through the mapping (/proc/PID/map_files, needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN), independently of its path.
/// Another file may be mapped there since the record was written, so it accepts only a regular file with the recorded build id, else with
/// the recorded inode and device, and no file if neither is recorded. It never opens any other file.
[[nodiscard]] MappingFile open_mapping(const ProcessMapping& mapping);

/// Returns whether writes to the open file are visible in the mapping: a shared mapping of a file that is not sealed ([fcntl(2)] "File
/// Sealing"). A copy of such a file is valid only for the time at which it was taken.
[[nodiscard]] bool is_written_through(int fd, uint32_t mapping_flags);

}  // namespace ptd::stash
