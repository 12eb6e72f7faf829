// ChangedFiles: what a process changed in the code of files. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "recording/image/announced/live_code.h"

namespace ptd {

/// A file's code is reported to be mapped where it was before: its protection changed, or the file was mapped anew. The first keeps what
/// was written to it, and no record tells them apart.
struct Remapped {
  TimeNs when;
  uint64_t address = 0, size_bytes = 0;
  bool now_writable = false;  ///< and it is a section of its own from then on, whose bytes are the file's
};

/// What announced changes left in each place. Also of memory that is no file's. Not thread-safe.
class ChangedFiles {
 public:
  explicit ChangedFiles(LiveFunctions& functions) : certain_(functions), all_(functions) {}

  /// A change that ended at `done` left this, whose bytes never change. Without bytes: it took the code away, or did not give it.
  void set(uint64_t address, LiveFunction left, TimeNs done) {
    left.told = done;
    all_.set(address, left);
    certain_.set(address, std::move(left));
  }
  /// Calls doubt(address, size, left, skip) for what each change left that ended before: `size` bytes of `left`, after the first `skip`.
  /// What is doubted stays so, and a later range has it only if it becomes writable.
  template <typename Doubt>
  void remap(const Remapped& range, const Doubt& doubt) {
    const LiveCode& code = range.now_writable ? all_ : certain_;
    code.each(range.address, range.size_bytes, [&](uint64_t begin, const LiveFunction& left) {
      const uint64_t first = std::max(begin, range.address), end = std::min(begin + left.size_bytes, range.address + range.size_bytes);
      if (left.told >= range.when) return;
      doubt(first, end - first, left, first - begin);
      certain_.cut(first, end - first);
    });
  }

 private:
  LiveCode certain_, all_;
};

}  // namespace ptd
