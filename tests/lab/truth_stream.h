// Converts the plugin's raw ground truth of one cpu (capture/emulate/unit/truth_log.h) to checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::lab {

struct TruthPsb {
  uint64_t offset_bytes = 0, tsc = 0;
};
struct TruthSummary {
  uint64_t insns = 0, kernel_insns = 0;
  std::vector<TruthPsb> psbs;
};

/// Writes a line every 100,000 instructions and one at the end: count, FNV-1a-64 over the addresses (8 bytes each, little-endian), the same
/// over their bytes, last address, TSC of the last PSB before. Returns false if the stream is inconsistent or the file cannot be written.
[[nodiscard]] bool write_checkpoints(const std::vector<std::byte>& stream, const std::string& path, TruthSummary& summary);

}  // namespace ptd::lab
