// PathCounts: how often blocks ran one after the other and where the flow went from there, counted while the flow is followed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/flow.h"

namespace ptd {

/// What is known of a path without a look at its blocks' instructions.
enum class PathEnd : uint8_t {
  unknown,
  told,     ///< each block's bytes tell where it may go
  dynamic,  ///< so do all but the last one's, which ends in a return or an indirect branch
};

/// What was counted, and the blocks that it is about.
class PTD_API PathCounts {
 public:
  /// Neighbouring blocks ran `count` times one after the other, and then the flow went on at `to`: 0 if the last one's bytes tell.
  struct Path {
    size_t first = 0, blocks = 0;
    Ip to;
    uint64_t count = 0;
    PathEnd end = PathEnd::unknown;
  };
  /// Blocks that are appended to blocks() before the next add() make up its path.
  [[nodiscard]] std::vector<Block>& blocks() { return blocks_; }
  void add(Ip to, uint64_t count, PathEnd end) {
    const size_t first = paths_.empty() ? 0 : paths_.back().first + paths_.back().blocks;
    paths_.push_back({first, blocks_.size() - first, to, count, end});
  }
  [[nodiscard]] const std::vector<Path>& paths() const { return paths_; }
  [[nodiscard]] std::span<const Block> blocks(const Path& path) const { return std::span(blocks_).subspan(path.first, path.blocks); }
  /// To be called now and then: where so many paths have come that it is worth while, each is taken apart into its blocks, alike ones are
  /// put together, and what is left grows with the code. What is told of blocks and ways stays as it was.
  void compact(const BlockTable& table);

 private:
  static constexpr size_t kMostBlocks = 1U << 20;  // before the first time
  size_t compact_at_ = kMostBlocks;
  std::vector<Block> blocks_;
  std::vector<Path> paths_;
};

/// Counters found by a key that is not 0: open addressing, so that to count is one line of the cache, and waits for nothing.
class PTD_API KeyCounts {
 public:
  struct Slot {
    uint64_t key = 0;  ///< 0: empty
    uint64_t count = 0;
  };
  /// The key's counter; valid until the next call.
  [[nodiscard]] uint64_t& count(uint64_t key) {
    Slot& slot = slots_[first_slot(key)];
    return slot.key == key ? slot.count : find(key);
  }
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }
  void clear();

 private:
  [[nodiscard]] uint64_t first_slot(uint64_t key) const { return key * 0x9e3779b97f4a7c15ULL >> shift_; }
  uint64_t& find(uint64_t key);
  static constexpr unsigned kFirstShift = 52;
  unsigned shift_ = kFirstShift;
  size_t used_ = 0;
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << (64 - kFirstShift));
};

/// Keys in the order in which they were counted, so that it can be taken back.
class PTD_API KeyJournal {
 public:
  /// Where the next key is to be written; so many may be, then set_end() is to be called.
  uint64_t* room_for(size_t count);
  void set_end(const uint64_t* end) { size_ = static_cast<size_t>(end - keys_.get()); }
  void clear() { size_ = 0; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::span<const uint64_t> keys() const { return {keys_.get(), size_}; }

 private:
  std::unique_ptr<uint64_t[]> keys_;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace ptd
