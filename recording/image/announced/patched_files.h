// PatchedFiles: what a process wrote over the code of files. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "recording/image/announced/live_code.h"

namespace ptd {

/// A file's code is reported to be mapped where it was before: its protection changed, or the file was mapped anew. The first keeps what was written to
/// it, and no record tells them apart.
struct Remapped {
  TimeNs when;
  uint64_t address = 0, size_bytes = 0;
};

/// The announced patches at one moment that are certain. Not thread-safe.
class PatchedFiles {
 public:
  explicit PatchedFiles(LiveFunctions& functions) : code_(functions) {}

  /// A patch that ended at `done` wrote these bytes. It is of a file's code where `live` has none.
  void patch(uint64_t address, const std::shared_ptr<std::vector<std::byte>>& bytes, TimeNs done, const LiveCode& live) {
    uint64_t at = address;
    const auto add = [&](uint64_t to) {
      if (to <= at) return;
      LiveFunction part;
      part.size_bytes = to - at;
      part.code = bytes;
      part.offset_bytes = at - address;
      part.told = done;
      code_.set(at, std::move(part));
    };
    live.each(address, bytes->size(), [&](uint64_t first, const LiveFunction& function) {
      add(first);
      at = std::max(at, first + function.size_bytes);
    });
    add(address + bytes->size());
  }
  /// Calls doubt(address, bytes, owner) for each patch that ended before, once.
  template <typename Doubt>
  void remap(const Remapped& range, const Doubt& doubt) {
    code_.each(range.address, range.size_bytes, [&](uint64_t begin, const LiveFunction& part) {
      const uint64_t first = std::max(begin, range.address), end = std::min(begin + part.size_bytes, range.address + range.size_bytes);
      if (part.told >= range.when) return;
      doubt(first, part.bytes().subspan(first - begin, end - first), part);
      code_.cut(first, end - first);
    });
  }

 private:
  LiveCode code_;
};

}  // namespace ptd
