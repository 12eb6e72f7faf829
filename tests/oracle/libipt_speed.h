// libipt as a peer in benchmarks: decodes and counts, nothing else, in its fastest configuration.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ptdecode/pt/config.h"

namespace ptd::oracle {

/// Code at `address`: `size_bytes` of `path` from `offset_bytes` on.
struct PeerSection {
  std::string path;
  uint64_t offset_bytes = 0, size_bytes = 0, address = 0;
};

struct PeerCounts {
  uint64_t instructions = 0, blocks = 0, errors = 0;
};

/// An image with a section cache large enough to keep everything mapped, as required by libipt's block cache. Built once, outside of the
/// measured time.
class PeerImage {
 public:
  explicit PeerImage(const std::vector<PeerSection>& sections);
  ~PeerImage();
  PeerImage(const PeerImage&) = delete;
  PeerImage& operator=(const PeerImage&) = delete;

  [[nodiscard]] PeerCounts decode_insns(Bytes trace, const pt::Config& config) const;
  /// In libipt's fastest configuration: blocks continue through direct calls and jumps.
  [[nodiscard]] PeerCounts decode_blocks(Bytes trace, const pt::Config& config) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd::oracle
