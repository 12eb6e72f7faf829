// ReplayCursor: a position in the flow of a recording that moves in both directions, instruction by instruction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replay/page_store.h"

namespace ptd::replay {

/// Names a thread of the recording: its tid, or a number of its own for the idle task of a cpu and for flow whose thread is not known.
using ThreadKey = int64_t;
inline constexpr ThreadKey kNoThread = 0;
inline constexpr ThreadKey kIdleThreads = 0x40000000;     ///< plus the cpu
inline constexpr ThreadKey kUnknownThreads = 0x50000000;  ///< plus the stream

/// The part of a recording that is replayed.
struct ReplayFilter {
  Interval time;
  std::vector<int32_t> cpus, pids, tids;  ///< empty: all
};

/// An instruction of the flow.
struct ReplayPlace {
  ThreadKey thread = kNoThread;
  uint32_t stream = 0;
  int32_t pid = -1, tid = -1;
  SpaceId space = kNoSpace;
  TimeNs time;
  Ip ip;
  const BlockInfo* block = nullptr;  ///< the block that contains it; null: no instruction
  uint16_t flags = 0;                ///< of the block
};

/// Walks the items of all streams in one order: by time, and for equal times by stream. The order of the items of a stream is that of its
/// trace. A position is between two instructions, events or gaps. Moving there and back gives the same sequence.
///
/// Copies share pages, so that a copy can look ahead. Not thread-safe. The store must outlive the cursor.
class ReplayCursor {
 public:
  ReplayCursor(PageStore& store, const ReplayFilter& filter);

  /// Moves before everything at `time` or later.
  void seek(TimeNs time);
  void seek_end();

  /// Makes the next (previous) item the current one, unless the position is within an item. Returns false at the end (beginning).
  bool enter_next();
  bool enter_previous();
  /// The current item. Valid after enter_*() returned true, until a call of leave_*() or seek*().
  [[nodiscard]] const Stretch& item() const { return heads_[stream_].page->stretches[heads_[stream_].at]; }
  [[nodiscard]] uint32_t stream() const { return stream_; }
  [[nodiscard]] ThreadKey thread() const { return thread_of(stream_, item()); }
  [[nodiscard]] const Event& event() const { return event(item()); }
  /// Of an item of the same page.
  [[nodiscard]] const Event& event(const Stretch& stretch) const { return page().events[stretch.first]; }
  /// Of a gap that is not the edge of a window.
  [[nodiscard]] const Gap& gap() const { return page().gaps[item().first]; }
  /// Leaves an event or a gap after it (before it).
  void leave_forward();
  void leave_backward();
  /// After enter_previous(): leaves the item after it, unless the position is between two of its instructions. At the end of an item there
  /// is no next instruction in it.
  void step_out();

  /// For blocks: the number of those before the position; the instructions of the next one that are before it.
  [[nodiscard]] uint32_t block_index() const { return block_; }
  [[nodiscard]] uint32_t insn_index() const { return insn_; }
  [[nodiscard]] const Block& block(uint32_t index) const { return page().blocks[item().first + index]; }
  [[nodiscard]] const BlockInfo& info(uint32_t index) const { return store_->table(stream_).info(block(index).node); }
  /// Moves within the current blocks. Leaves them at their end (start).
  void set_forward(uint32_t block, uint32_t insn);
  void set_backward(uint32_t block, uint32_t insn);
  /// Returns the offset of each instruction of a block. Valid until the next call.
  std::span<const uint32_t> insn_offsets(const BlockInfo& info);
  /// Returns the instruction at (block, insn) of the current blocks.
  ReplayPlace place(uint32_t block, uint32_t insn);

  /// Return the next instruction, and that before the position, of any thread or of one; nothing at the end. They look at most at
  /// `most_items` items and leave the position as it is.
  [[nodiscard]] std::optional<ReplayPlace> next_place(ThreadKey thread = kNoThread, size_t most_items = 1U << 16) const;
  [[nodiscard]] std::optional<ReplayPlace> previous_place(ThreadKey thread = kNoThread, size_t most_items = 1U << 16) const;
  /// Returns the time of the next item, or of the previous one at the end.
  [[nodiscard]] TimeNs time() const;
  /// Returns the event that precedes the current item in its stream and page, null if there is none.
  [[nodiscard]] const Stretch* event_before() const;

  [[nodiscard]] PageStore& store() const { return *store_; }
  [[nodiscard]] const ReplayFilter& filter() const { return filter_; }
  [[nodiscard]] ThreadKey thread_of(uint32_t stream, const Stretch& stretch) const;

 private:
  struct Head {
    PagePtr page;     ///< null: the stream has no items
    uint32_t at = 0;  ///< the next item
  };
  struct Key {
    TimeNs time;
    uint32_t stream = 0;
    friend constexpr auto operator<=>(const Key&, const Key&) = default;
  };
  [[nodiscard]] const Page& page() const { return *heads_[stream_].page; }
  [[nodiscard]] bool wanted(const Stretch& stretch) const;
  const Stretch* next_of(Head& head);
  const Stretch* previous_of(Head& head);

  PageStore* store_;
  ReplayFilter filter_;
  std::vector<Head> heads_;  // one a stream
  bool inside_ = false;      // of the current item
  uint32_t stream_ = 0, block_ = 0, insn_ = 0;
  // The other streams' nearest item in the direction of the last move, which stays the same while only stream_ moves.
  enum class Known : uint8_t { nothing, next, previous } known_ = Known::nothing;
  std::optional<Key> nearest_;
  std::vector<uint32_t> offsets_;
  const BlockInfo* offsets_of_ = nullptr;
};

/// Returns the number that names a thread; see ThreadKey.
[[nodiscard]] ThreadKey thread_key(int32_t tid, int32_t cpu, uint32_t stream);
/// Returns true if `values` is empty or contains `value`.
[[nodiscard]] bool chosen(const std::vector<int32_t>& values, int32_t value);

}  // namespace ptd::replay
