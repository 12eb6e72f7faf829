// ChangedFiles: what a process changed in the code of files. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "recording/image/announced/live_code.h"

namespace ptd {

/// A file's code is reported to be mapped where it was before: its protection changed, or the file was mapped anew. The first keeps what was written to
/// it, and no record tells them apart.
struct Remapped {
  TimeNs when;
  uint64_t address = 0, size_bytes = 0;
};

/// What announced changes left in each place, since it was reported to be mapped last. Also of memory that is no file's. Not thread-safe.
class ChangedFiles {
 public:
  explicit ChangedFiles(LiveFunctions& functions) : code_(functions) {}

  /// A change that ended at `done` left this, whose bytes never change. Without bytes: it took the code away, or did not give it.
  void set(uint64_t address, LiveFunction left, TimeNs done) {
    left.told = done;
    code_.set(address, std::move(left));
  }
  /// Calls doubt(address, size, left, skip) for what each change left that ended before, once: `size` bytes of `left`, after the first `skip`.
  template <typename Doubt>
  void remap(const Remapped& range, const Doubt& doubt) {
    code_.each(range.address, range.size_bytes, [&](uint64_t begin, const LiveFunction& left) {
      const uint64_t first = std::max(begin, range.address), end = std::min(begin + left.size_bytes, range.address + range.size_bytes);
      if (left.told >= range.when) return;
      doubt(first, end - first, left, first - begin);
      code_.cut(first, end - first);
    });
  }

 private:
  LiveCode code_;
};

}  // namespace ptd
