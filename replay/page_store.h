// PageStore: decoded pieces of a recording's flow, kept in a bounded cache, for cursors that move in both directions.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "ptdecode/flow_cursor.h"
#include "ptdecode/recording.h"

namespace ptd::replay {

/// Blocks with nothing between them, or one event, or one gap, with its context. The edge between two windows of trace is an item of kind
/// `gap`, too.
struct Stretch {
  FlowItem kind = FlowItem::blocks;  ///< blocks, event or gap
  uint32_t first = 0, count = 1;     ///< index into the list of this kind, and the number of blocks
  TimeNs time;                       ///< likeliest; never goes back within a stream
  int32_t pid = -1, tid = -1;
  SpaceId space = kNoSpace;
  bool is_window = false;  ///< another snapshot or AUX sample begins: there is no Gap, and the context is that of the next item
};

/// A part of a segment: at most about kPageItems blocks, or stretches.
struct Page {
  uint32_t stream = 0, number = 0;
  uint64_t offset_bytes = 0;  ///< stream offset of the segment
  bool is_last = false;       ///< of its segment
  std::vector<Block> blocks;
  std::vector<Stretch> stretches;
  std::vector<Event> events;
  std::vector<Gap> gaps;
  [[nodiscard]] size_t size_bytes() const;
};
using PagePtr = std::shared_ptr<const Page>;

/// Decodes pages on demand with one decoder for each stream. Memory is bounded by kCacheBytes, the pages that callers hold, and the
/// decoders' tables of code. Not thread-safe. The recording must outlive the store.
class PageStore {
 public:
  static constexpr size_t kPageItems = 1U << 16;
  static constexpr size_t kCacheBytes = size_t{256} << 20;

  explicit PageStore(const Recording& recording);
  ~PageStore();

  /// Returns the first page of the first segment that may hold `time` or later; null if there is none.
  PagePtr at(uint32_t stream, TimeNs time);
  /// Returns the last page of the stream; null if it has no segment.
  PagePtr last(uint32_t stream);
  /// Return the neighbours of a page; null at the ends of the stream.
  PagePtr next(const Page& page);
  PagePtr previous(const Page& page);
  /// Returns the nodes of the blocks of a stream's pages.
  [[nodiscard]] const BlockTable& table(uint32_t stream);
  [[nodiscard]] const Recording& recording() const { return *recording_; }
  /// Returns the number of pages decoded so far; for tests of the cache.
  [[nodiscard]] uint64_t decoded_pages() const { return decoded_; }

 private:
  struct Decode;  // one stream's decoder and where it is
  using Key = std::tuple<uint32_t, uint64_t, uint32_t>;
  struct Kept {
    PagePtr page;
    std::list<Key>::iterator use;
  };
  static constexpr uint32_t kLastPage = 0xffffffffU;

  Decode& decode_of(uint32_t stream);
  PagePtr find(const Key& key);
  void keep(const PagePtr& page);
  PagePtr page(uint32_t stream, uint64_t offset, uint32_t number);

  const Recording* recording_;
  std::vector<std::unique_ptr<Decode>> decodes_;
  std::map<Key, Kept> kept_;
  std::list<Key> uses_;  // most recent first
  size_t kept_bytes_ = 0;
  uint64_t decoded_ = 0;
};

}  // namespace ptd::replay
