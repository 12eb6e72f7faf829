// MemoTable: what groups of branch bits do from a run on, as far as that is static, laid out for a loop that waits for one load at a time.
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

/// What the next bits do. Found by run and bits alone: see MemoTable::find.
struct Memo {
  RunId next = kNoRun;  ///< the run that comes after it; kNoRun: it ends with a return to a call from before it
  uint32_t body = 0;    ///< MemoTable::blocks() and calls()
  ValidId valid = 0;
  uint8_t bits = 0;    ///< how many it takes; 0: not made yet
  uint8_t blocks = 0;  ///< not made yet: how often it was asked for
  uint8_t depth = 0;   ///< most calls that are open within
  int8_t rise = 0;     ///< calls that it leaves open; -1: it ends with a return to a call from before it
};
static_assert(sizeof(Memo) == 16);

/// For each run a table that is indexed by the next bits, the oldest on top. How many bits depends on how often the run comes: code that
/// runs a few times gets none, the hottest the most. A memo that takes fewer bits than its table is wide stands in it for all that may
/// follow.
class MemoTable {
 public:
  static constexpr uint32_t kMaxBlocks = 56;
  static constexpr uint32_t kMaxCalls = 4;
  /// Blocks that may be read behind a memo's last.
  static constexpr uint32_t kCopySlack = 16;
  static constexpr std::array<uint8_t, 4> kWidths = {0, 3, 6, 9};  ///< bits, by level
  /// Memos that took all the bits they could, of a run, that lift it to the next level.
  static constexpr std::array<uint16_t, 4> kVisits = {2, 32, 512, 0xffff};
  static constexpr uint32_t kMostBits = kWidths.back();

  MemoTable() { clear(); }
  void clear();
  /// Makes room for runs below `count`.
  void grow_to(size_t count) { links_.resize(count); }

  /// Where a run's table is.
  struct Link {
    uint32_t first = 0;
    uint16_t left = kVisits[0];  ///< visits to the next level
    uint8_t shift = 63;  ///< 64 less the table's width; there is no width 0: the two entries of a run without a table are never made
    uint8_t level = 0;
  };
  static_assert(sizeof(Link) == 8);

  struct alignas(16) Body {
    std::array<Block, 2> blocks;  ///< of a memo: kMaxCalls runs, then the blocks
  };
  /// What a loop holds of the table while nothing is added to it.
  struct View {
    Link* links;
    const Memo* memos;
    const Body* bodies;

    /// Entry for the bits on top of `window`; its `bits` is 0 if it is not made.
    [[nodiscard]] const Memo& find(RunId run, uint64_t window) const { return memos[links[run].first + (window >> links[run].shift)]; }
    /// Runs at the return addresses of the calls left open, oldest first; kMaxCalls may be read.
    [[nodiscard]] const Block* calls(const Memo& memo) const { return bodies[memo.body].blocks.data(); }
    /// At least kCopySlack blocks may be read behind them.
    [[nodiscard]] const Block* blocks(const Memo& memo) const { return bodies[memo.body].blocks.data() + kMaxCalls / 2; }
  };
  [[nodiscard]] View view() { return {links_.data(), memos_.data(), bodies_.data()}; }
  [[nodiscard]] const Memo& find(RunId run, uint64_t window) { return view().find(run, window); }
  [[nodiscard]] uint32_t width(RunId run) const { return kWidths[links_[run].level]; }
  /// The flow came to `run`, and that counts.
  void visit(RunId run) {
    if (--links_[run].left == 0) lift(links_[run]);
  }
  /// Lifts the run to the next level if it is due.
  void lift_if_due(RunId run) {
    if (links_[run].left == 0) lift(links_[run]);
  }
  /// Notes that an entry, not made, was asked for. True if it was before.
  bool ask(RunId run, uint64_t window);
  /// Makes the entry, and all that differ only in bits behind those that were looked at to make it.
  void put(RunId run, uint64_t window, uint32_t looked_at, Memo memo, std::span<const Block> blocks, std::span<const RunId> calls);

  [[nodiscard]] bool overgrown() const { return memos_.size() > kMostMemos || bodies_.size() > kMostBodies; }
  [[nodiscard]] size_t memory_bytes() const {
    return links_.capacity() * sizeof(Link) + memos_.capacity() * sizeof(Memo) + bodies_.capacity() * sizeof(Body);
  }

 private:
  static constexpr size_t kMostMemos = 1U << 22, kMostBodies = 1U << 21;
  void lift(Link& link);

  std::vector<Link> links_;
  std::vector<Memo> memos_;
  std::vector<Body> bodies_;
};

}  // namespace ptd::pt
