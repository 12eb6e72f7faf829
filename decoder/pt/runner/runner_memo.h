// MemoTable: the effects of groups of branch bits from a run on, as far as they are static, laid out so that a loop waits for one load at a
// time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "decoder/pt/runner/zeroed_array.h"
#include "ptdecode/flow.h"

namespace ptd::pt {

using RunId = uint32_t;
inline constexpr RunId kNoRun = 0;
using ValidId = uint32_t;  ///< index of an interval; 0: all time

/// Reference to a run's table of memos: its start, and 64 minus the number of bits that index it.
using TableRef = uint32_t;

/// The effect of the next bits, from a run on.
struct Memo {
  TableRef next = 0;  ///< table of the run after it; 0: it ends with a return to a call made before it
  uint32_t body = 0;  ///< index for MemoTable::View::blocks() and calls()
  ValidId valid = 0;
  uint8_t bits = 0;        ///< number of bits that it takes; 0: not created yet
  uint8_t blocks = 0;      ///< number of blocks; not created yet: number of requests
  uint8_t depth_left = 0;  ///< ReturnStack::kDepth minus the maximum number of calls open inside it
  int8_t rise = 0;         ///< calls that it leaves open; -1: it ends with a return to a call made before it
};
static_assert(sizeof(Memo) == 16);

/// Each run has a table that is indexed by the next bits, the oldest on top. The number of bits depends on how often the run is executed:
/// code that runs a few times gets none, the hottest code the most. A memo that takes fewer bits than the table's width is stored for all
/// values of the other bits.
///
/// A memo contains the reference of the next run's table, so getting from one memo to the next takes one load. Each table is preceded by a
/// header with its run. When a run is lifted to a wider table, its old table is emptied; renew() updates the memos that still refer to it.
class MemoTable {
 public:
  static constexpr uint32_t kMaxBlocks = 56;
  static constexpr uint32_t kMaxCalls = 4;
  /// Blocks that may be read after a memo's last one.
  static constexpr uint32_t kCopySlack = 16;
  static constexpr std::array<uint8_t, 4> kWidths = {1, 3, 6, 9};  ///< bits, by level; the lowest level has no memos
  /// Number of visits after which a run is lifted to the next level.
  static constexpr std::array<uint16_t, 3> kVisits = {2, 32, 256};
  static constexpr uint32_t kMostBits = kWidths.back();

  MemoTable() { clear(); }
  void clear();
  /// Creates tables for the runs below `count`.
  void grow_to(size_t count);

  struct alignas(16) Body {
    std::array<Block, 2> blocks;  ///< of a memo: kMaxCalls runs, followed by the blocks
  };
  /// Pointers for a loop that adds nothing to the table.
  struct View {
    const TableRef* tables;  ///< by run
    const Memo* memos;
    const Body* bodies;

    /// Returns the entry for the bits on top of `window`; its `bits` is 0 if it is not created.
    [[nodiscard]] const Memo& find(TableRef table, uint64_t window) const { return memos[(table >> 6) + (window >> (table & 63))]; }
    [[nodiscard]] RunId run_of(TableRef table) const { return memos[(table >> 6) - 1].body; }
    /// Returns the runs at the return addresses of the calls left open, oldest first; kMaxCalls may be read.
    [[nodiscard]] const void* calls(const Memo& memo) const { return bodies[memo.body].blocks.data(); }
    /// Returns the memo's blocks; at least kCopySlack more may be read.
    [[nodiscard]] const Block* blocks(const Memo& memo) const { return bodies[memo.body].blocks.data() + kMaxCalls / 2; }
  };

  [[nodiscard]] View view() const { return {tables_.data(), memos_.data(), bodies_.data()}; }
  [[nodiscard]] const Memo& find(RunId run, uint64_t window) const { return view().find(tables_[run], window); }
  [[nodiscard]] TableRef table(RunId run) const { return tables_[run]; }
  /// Returns the maximum number of bits of the run's memos; 0: it has none yet.
  [[nodiscard]] uint32_t width(RunId run) const {
    const uint32_t bits = 64 - (tables_[run] & 63);
    return bits == kWidths[0] ? 0 : bits;
  }
  /// Counts a visit of `run`, and lifts it to the next level if due.
  void visit(RunId run) {
    if (--header(run).valid == 0) lift(run);
  }
  /// Updates `last`, a memo that leads to `run`, to the run's current table.
  void renew(const Memo& last, RunId run);
  /// Counts a request for an entry. Returns true if it was requested before, or exists.
  bool ask(RunId run, uint64_t window);
  /// Stores the entry, and the entries that differ only in bits after the `looked_at` ones.
  void put(RunId run, uint64_t window, uint32_t looked_at, Memo memo, std::span<const Block> blocks, std::span<const RunId> calls);

  [[nodiscard]] bool overgrown() const { return memos_.size() > kMostMemos || bodies_.size() > kMostBodies; }
  [[nodiscard]] size_t memory_bytes() const { return tables_.memory_bytes() + memos_.memory_bytes() + bodies_.memory_bytes(); }

 private:
  static constexpr size_t kMostMemos = 1U << 22, kMostBodies = 1U << 21;
  /// body: the run. valid: remaining visits to the next level. blocks: the level.
  Memo& header(RunId run) { return memos_[(tables_[run] >> 6) - 1]; }
  void add_cold(RunId run);
  void add_table(RunId run, uint32_t level);
  void set_table(RunId run, uint32_t level, size_t first);
  void lift(RunId run);

  size_t next_cold_ = 0;    ///< the next header of a table of the lowest level, of which
  uint32_t cold_left_ = 0;  ///< so many are allocated
  ZeroedArray<TableRef> tables_;
  ZeroedArray<Memo> memos_;
  ZeroedArray<Body> bodies_;
};

}  // namespace ptd::pt
