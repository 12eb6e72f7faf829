// JIT code of a process from its jitdump file. Private to recording.
#pragma once

#include <string>
#include <vector>

#include "image/base/time_conversion.h"
#include "recording/image_build.h"

namespace ptd {

/// A jitdump that a process mapped to announce it.
struct JitdumpMapping {
  SpaceId space;
  std::string path;
  TimeNs mapped_at;
  int32_t pid = -1;  ///< with address and time: which mapping of the recording it is
  Ip address;
  uint64_t inode = 0;  ///< of the file, 0 if not recorded
};

/// True for ".../jit-123.dump".
[[nodiscard]] bool is_jitdump_path(const std::string& path);

/// Adds each loaded or moved function as a section with its bytes and a name. `monotonic`: the recording's clock is CLOCK_MONOTONIC.
/// `warnings` gets a sentence for a file that is absent, damaged or of another clock.
void add_jitdump(ImageBuild& image, const JitdumpMapping& mapping, const TimeConversion& conversion, bool monotonic,
                 std::vector<std::string>& warnings);

}  // namespace ptd
