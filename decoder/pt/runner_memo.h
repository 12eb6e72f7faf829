// MemoTable: what groups of branch bits do from a run on, as far as that is static, laid out for the processor's caches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "decoder/batch.h"

namespace ptd::pt {

using RunId = uint32_t;
inline constexpr RunId kNoRun = 0;
using ValidId = uint32_t;  ///< index of an interval; 0: all time

/// A call: where it returns to.
struct CallSite {
  uint64_t ip = 0;
  RunId run = kNoRun;
};

/// Key: run and group. Four stand in a line of the cache.
struct Memo {
  RunId run = kNoRun;
  uint16_t group = 0;  ///< up to kGroupBits bits below a stop bit, the oldest on top
  uint8_t bits = 0;    ///< how many of them it takes; 0: only seen, not made yet
  uint8_t blocks = 0;
  RunId next = kNoRun;  ///< the run that comes after it, unless it pops
  uint32_t body = 0;    ///< MemoTable::head() and so on
};
static_assert(sizeof(Memo) == 16);

/// The most bits that a memo is asked for.
inline constexpr uint32_t kGroupBits = 6;

/// What stands before a memo's blocks.
struct MemoHead {
  ValidId valid = 0;
  uint8_t calls = 0;  ///< that are not returned from within; they stand behind the blocks
  uint8_t depth = 0;  ///< most calls that are open within
  uint8_t pops = 0;   ///< 1: it ends with a return to a call from before; `next` then says nothing
  uint8_t unused = 0;
  [[nodiscard]] bool plain() const { return depth == 0 && pops == 0; }
};
static_assert(sizeof(MemoHead) == sizeof(Block));

class MemoTable {
 public:
  static constexpr uint32_t kMaxBlocks = 56;
  static constexpr uint32_t kMaxCalls = 16;
  /// Blocks that may be read behind a memo's last.
  static constexpr uint32_t kCopySlack = 16;

  MemoTable() { clear(); }
  void clear();

  /// The memo of (run, group), perhaps only seen; null if there is none.
  [[nodiscard]] const Memo* find(RunId run, uint32_t group) const {
    const Set& set = sets_[set_of(run, group)];
    for (const Memo& memo : set.ways) {
      if (memo.run == run && memo.group == group) return &memo;
    }
    return nullptr;
  }
  /// A place for the memo of (run, group), which has none: marked as seen.
  void see(RunId run, uint32_t group);
  /// Fills the place of a memo that was seen, or made for another time.
  const Memo* put(const Memo& memo, const MemoHead& head, std::span<const Block> blocks, std::span<const CallSite> calls);

  [[nodiscard]] MemoHead head(const Memo& memo) const {
    MemoHead head;
    std::memcpy(static_cast<void*>(&head), lines_[memo.body].blocks.data(), sizeof head);
    return head;
  }
  /// At least kCopySlack blocks may be read behind them.
  [[nodiscard]] const Block* blocks(const Memo& memo) const { return lines_[memo.body].blocks.data() + 1; }
  [[nodiscard]] CallSite call(const Memo& memo, uint32_t index) const {
    CallSite call;
    std::memcpy(static_cast<void*>(&call), blocks(memo) + memo.blocks + index * kBlocksACall, sizeof call);
    return call;
  }
  [[nodiscard]] bool overgrown() const { return lines_.size() > kMostLines; }
  [[nodiscard]] size_t memory_bytes() const { return sets_.capacity() * sizeof(Set) + lines_.capacity() * sizeof(Line); }

 private:
  static constexpr size_t kFirstSets = 1U << 9, kMostSets = 1U << 16;
  static constexpr size_t kMostLines = 1U << 19;
  static constexpr uint32_t kBlocksACall = sizeof(CallSite) / sizeof(Block);
  struct alignas(64) Set {
    std::array<Memo, 4> ways;  ///< the latest first
  };
  struct alignas(64) Line {
    std::array<Block, 8> blocks;  ///< of a body: its MemoHead, the blocks, the calls
  };
  [[nodiscard]] size_t set_of(RunId run, uint32_t group) const { return ((run * 0x9e3779b1U) >> 11 ^ (group * 0x85ebU)) & mask_; }
  Memo* place(RunId run, uint32_t group);
  void grow();

  std::vector<Set> sets_;
  std::vector<Line> lines_;
  size_t mask_ = 0;
  size_t evicted_ = 0;
};

}  // namespace ptd::pt
