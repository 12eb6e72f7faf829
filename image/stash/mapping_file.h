// MappingFile: opens the file that a running process has mapped, and proves that it is the recorded one.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "image/stash/stash_dir.h"

namespace ptd::stash {

/// What a record, or /proc/PID/maps, says of a mapping.
struct ProcessMapping {
  int32_t pid = -1;
  uint64_t address = 0, size_bytes = 0;
  uint32_t maj = 0, min = 0;  ///< device of the file
  uint64_t inode = 0;         ///< 0: not said
  std::string build_id;       ///< hex; the kernel says it in the inode's stead
};

struct MappingFile {
  Fd fd;                ///< open for reading, if it is the one
  struct stat info {};  ///< of it
  std::string why;      ///< else: why there is none
};

/// Opens the file by the mapping itself (/proc/PID/map_files, needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN), whatever its name leads to by
/// now. What is mapped there may be another file since the record was written: only a regular file with the build id that is said, else
/// with the inode and the device, is taken; where neither is said, none. Nothing else is opened, not even for a moment.
[[nodiscard]] MappingFile open_mapping(const ProcessMapping& mapping);

/// Whether who has the file open may write to it and be seen by a mapping: a shared one, of a file that is not sealed against that
/// ([fcntl(2)] "File Sealing"). Then the file is memory, of which a copy is as good as its moment.
[[nodiscard]] bool is_written_through(int fd, uint32_t mapping_flags);

}  // namespace ptd::stash
