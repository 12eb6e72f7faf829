// The chunks of a bundle or plan, repaired so that a reader looks at their content.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace ptd::test {

/// Returns the input with valid lengths, correct checksums, and the number of chunks at its end, as of version 1: docs/FORMAT.md.
inline std::vector<unsigned char> repaired_chunks(std::span<const unsigned char> input) {
  constexpr size_t kHeaderBytes = 16, kChunkHeaderBytes = 32;
  std::vector<unsigned char> out(input.begin(), input.end());
  constexpr unsigned char kVersion[] = {1, 0, 0, 0, 0, 0, 0, 0};
  if (out.size() >= kHeaderBytes) std::memcpy(&out[kHeaderBytes - sizeof kVersion], kVersion, sizeof kVersion);
  uint32_t count = 0;
  for (size_t at = kHeaderBytes; at + kChunkHeaderBytes <= out.size(); ++count) {
    uint32_t method = 0;
    uint64_t stored = 0;
    std::memcpy(&method, &out[at + 4], sizeof method);
    std::memcpy(&stored, &out[at + 8], sizeof stored);
    stored = std::min<uint64_t>(stored, out.size() - at - kChunkHeaderBytes);
    unsigned char* content = out.data() + at + kChunkHeaderBytes;
    if (std::memcmp(&out[at], "END ", 4) == 0 && stored >= sizeof count) {
      stored = sizeof count;
      std::memcpy(content, &count, sizeof count);
    }
    uint64_t sum = 0xcbf29ce484222325;  // FNV-1a
    for (size_t i = 0; i < stored; ++i) sum = (sum ^ content[i]) * 0x100000001b3;
    std::memcpy(&out[at + 8], &stored, sizeof stored);
    if (method == 0) std::memcpy(&out[at + 16], &stored, sizeof stored);
    std::memcpy(&out[at + 24], &sum, sizeof sum);
    at += kChunkHeaderBytes + stored;
  }
  return out;
}

}  // namespace ptd::test
