// MemoTable: what groups of branch bits do from a run on, as far as that is static, laid out for a loop that waits for one load at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "ptdecode/flow.h"

namespace ptd::pt {

using RunId = uint32_t;
inline constexpr RunId kNoRun = 0;
using ValidId = uint32_t;  ///< index of an interval; 0: all time

/// A run's table of memos: where it begins, and 64 less the bits that it is indexed by.
using TableRef = uint32_t;

/// What the next bits do, from a run on.
struct Memo {
  TableRef next = 0;  ///< table of the run that comes after it; 0: it ends with a return to a call from before it
  uint32_t body = 0;  ///< MemoTable::View::blocks() and calls()
  ValidId valid = 0;
  uint8_t bits = 0;    ///< how many it takes; 0: not made yet
  uint8_t blocks = 0;  ///< not made yet: how often it was asked for
  uint8_t room = 0;    ///< ReturnStack::kDepth less the most calls that are open within
  int8_t rise = 0;     ///< calls that it leaves open; -1: it ends with a return to a call from before it
};
static_assert(sizeof(Memo) == 16);

/// For each run a table that is indexed by the next bits, the oldest on top. How many bits depends on how often the run comes: code that
/// runs a few times gets none, the hottest the most. A memo that takes fewer bits than its table is wide stands in it for all that may
/// follow.
///
/// A memo says where the next run's table is, so that the way from one to the next is one load. Before each table stands the run's number.
/// A run that is lifted to a wider table leaves the old one empty behind it; who comes there is told the new one (see renew()).
class MemoTable {
 public:
  static constexpr uint32_t kMaxBlocks = 56;
  static constexpr uint32_t kMaxCalls = 4;
  /// Blocks that may be read behind a memo's last.
  static constexpr uint32_t kCopySlack = 16;
  static constexpr std::array<uint8_t, 4> kWidths = {1, 3, 6, 9};  ///< bits, by level; nothing is made at the lowest
  /// Visits that lift a run to the next level.
  static constexpr std::array<uint16_t, 3> kVisits = {2, 32, 256};
  static constexpr uint32_t kMostBits = kWidths.back();

  MemoTable() { clear(); }
  void clear();
  /// The runs below `count` get tables.
  void grow_to(size_t count);

  struct alignas(16) Body {
    std::array<Block, 2> blocks;  ///< of a memo: kMaxCalls runs, then the blocks
  };
  /// What a loop holds of the table while nothing is added to it.
  struct View {
    const TableRef* tables;  ///< by run
    const Memo* memos;
    const Body* bodies;

    /// Entry for the bits on top of `window`; its `bits` is 0 if it is not made.
    [[nodiscard]] const Memo& find(TableRef table, uint64_t window) const { return memos[(table >> 6) + (window >> (table & 63))]; }
    [[nodiscard]] RunId run_of(TableRef table) const { return memos[(table >> 6) - 1].body; }
    /// Runs at the return addresses of the calls left open, oldest first; kMaxCalls may be read.
    [[nodiscard]] const void* calls(const Memo& memo) const { return bodies[memo.body].blocks.data(); }
    /// At least kCopySlack blocks may be read behind them.
    [[nodiscard]] const Block* blocks(const Memo& memo) const { return bodies[memo.body].blocks.data() + kMaxCalls / 2; }
  };

  [[nodiscard]] View view() const { return {tables_.data(), memos_.data(), bodies_.data()}; }
  [[nodiscard]] const Memo& find(RunId run, uint64_t window) const { return view().find(tables_[run], window); }
  [[nodiscard]] TableRef table(RunId run) const { return tables_[run]; }
  /// Bits of the run's memos, at most; 0: it gets none yet.
  [[nodiscard]] uint32_t width(RunId run) const {
    const uint32_t bits = 64 - (tables_[run] & 63);
    return bits == kWidths[0] ? 0 : bits;
  }
  /// The flow came to `run`, and that counts.
  void visit(RunId run) {
    if (--header(run).valid == 0) lift(run);
  }
  /// `last`, a memo, led to `run`: from now on to its present table.
  void renew(const Memo& last, RunId run);
  /// Notes that an entry, not made, was asked for. True if it was before.
  bool ask(RunId run, uint64_t window);
  /// Makes the entry, and all that differ only in bits behind those that were looked at to make it.
  void put(RunId run, uint64_t window, uint32_t looked_at, Memo memo, std::span<const Block> blocks, std::span<const RunId> calls);

  [[nodiscard]] bool overgrown() const { return memos_.size() > kMostMemos || bodies_.size() > kMostBodies; }
  [[nodiscard]] size_t memory_bytes() const {
    return tables_.capacity() * sizeof(TableRef) + memos_.capacity() * sizeof(Memo) + bodies_.capacity() * sizeof(Body);
  }

 private:
  static constexpr size_t kMostMemos = 1U << 22, kMostBodies = 1U << 21;
  /// body: the run. valid: visits to the next level. blocks: the level.
  Memo& header(RunId run) { return memos_[(tables_[run] >> 6) - 1]; }
  void add_table(RunId run, uint32_t level);
  void lift(RunId run);

  std::vector<TableRef> tables_;
  std::vector<Memo> memos_;
  std::vector<Body> bodies_;
};

}  // namespace ptd::pt
