// PageRelease: gives back the pages of mapped trace that were passed, so that a trace of any size takes little memory. Private to
// recording.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "recording/trace/streams.h"

namespace ptd {

/// The files that are mapped read-only. A page given back is read again from the file when it is touched: nothing becomes invalid.
class PageRelease {
 public:
  void add_mapping(Bytes mapping) { mappings_.push_back(mapping); }
  /// Gives back the whole pages of a stream's bytes [first, last) that lie in a mapping; other memory is left alone. Any thread.
  void release(const AuxStream& stream, uint64_t first_offset, uint64_t last_offset) const;

 private:
  std::vector<Bytes> mappings_;
};

/// How far one stream was read: when reading enters another stretch, the one it leaves is given back.
class PassedPages {
 public:
  /// Reading is at `offset_bytes` of the stream. Any thread.
  void at(const PageRelease& pages, const AuxStream& stream, uint64_t offset_bytes);

 private:
  std::atomic<uint64_t> stretch_{0};
};

}  // namespace ptd
