// PageRelease: gives back the pages of mapped trace that were passed, so that a trace of any size takes little memory. Private to
// recording.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "recording/trace/streams.h"

namespace ptd {

/// The files that are mapped read-only. A released page is read from the file again on access, so no pointer becomes invalid.
class PageRelease {
 public:
  void add_mapping(Bytes mapping) { mappings_.push_back(mapping); }
  /// Releases the whole pages of a stream's bytes [first, last) that are in a mapping; ignores other memory. Thread-safe.
  void release(const AuxStream& stream, uint64_t first_offset, uint64_t last_offset) const;
  /// Releases the whole pages of bytes [first, last) of a mapping, by its number in the order of add_mapping().
  void release(size_t mapping, uint64_t first_offset, uint64_t last_offset) const;

 private:
  std::vector<Bytes> mappings_;
};

/// The read position of one stream: when reading enters another part, the previous one is released.
class PassedPages {
 public:
  /// Declares that reading is at `offset_bytes` of the stream. Thread-safe.
  void at(const PageRelease& pages, const AuxStream& stream, uint64_t offset_bytes);

 private:
  std::atomic<uint64_t> stretch_{0};
};

/// The same for the records of files, which are passed once. Those that the reader still holds are read from the file again. Not
/// thread-safe.
class PassedRecords {
 public:
  /// Declares that reading is at `offset_bytes` of a file. `mapping`: its number.
  void at(const PageRelease& pages, size_t mapping, uint64_t offset_bytes);

 private:
  std::map<size_t, uint64_t> stretches_;
};

}  // namespace ptd
