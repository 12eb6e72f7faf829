// RunnerCode: static code as the Runner sees it: straight runs of blocks, decoded once a version and linked, and memos of groups of
// branches.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "decoder/batch.h"
#include "decoder/insn/insn.h"
#include "image/timeline.h"

namespace ptd::pt {

using RunId = uint32_t;
inline constexpr RunId kNoRun = 0;
using ValidId = uint32_t;  ///< index of an interval; 0: all time

/// What ends a straight run.
enum class RunEnd : uint8_t {
  unread,    ///< the code was not looked at yet
  stuck,     ///< the exact walker goes on: no certain bytes, or an instruction that needs it
  jcc,       ///< a branch bit: next[bit]
  ret,       ///< near RET: a branch bit with a call on the stack, or a TIP
  indirect,  ///< a TIP
  link,      ///< nothing is taken: the run was long enough, or the half of the address space changes. next[0]
};

/// A straight run: the blocks from an ip up to and with the first branch that takes something from the trace. Direct jumps and calls are
/// passed inside. One for each version of its bytes; those of one place are chained.
struct alignas(64) Run {
  uint64_t ip = 0;
  uint64_t branch_ip = 0;     ///< of its last instruction
  uint32_t place = 0;         ///< space and mode, see RunnerCode::place_of
  uint32_t blocks_first = 0;  ///< RunnerCode::blocks(), with `taken` left out at a jcc
  RunId next[2] = {};         ///< jcc: not taken, taken
  RunId target = kNoRun;      ///< indirect: the last target
  RunId sibling = kNoRun;     ///< another version of the same place
  ValidId valid = 0;
  uint32_t calls_first = 0;  ///< RunnerCode::calls()
  uint32_t instructions = 0;
  uint8_t blocks = 0;
  uint8_t calls = 0;  ///< return addresses that it pushes, oldest first
  RunEnd end = RunEnd::unread;
};
static_assert(sizeof(Run) == 64);

/// What a group of branch bits does from a run on, as far as that is static. Key: run and group.
struct Memo {
  RunId run = kNoRun;
  RunId next = kNoRun;  ///< the run that comes after it, unless `pops`
  uint32_t blocks_first = 0;
  uint32_t calls_first = 0;  ///< calls that are not returned from within
  ValidId valid = 0;
  uint16_t instructions = 0;
  uint8_t group = 0;  ///< up to six bits below a stop bit, the oldest on top
  uint8_t left = 0;   ///< group that is left over; 1: none. 0: only seen, not made yet
  uint8_t blocks = 0;
  uint8_t calls = 0;
  uint8_t depth = 0;  ///< most calls that are open within
  uint8_t pops = 0;   ///< 1: it ends with a return to a call from before; `next` then says nothing
  uint32_t id = 0;    ///< ordinal of the memo, for counters
};
static_assert(sizeof(Memo) == 32);

/// A call: where it returns to.
struct CallSite {
  uint64_t ip = 0;
  RunId run = kNoRun;
};

/// Owner of runs and memos of one decoder. Not thread-safe. Grows by what is new in the trace; clear() when overgrown().
class RunnerCode {
 public:
  RunnerCode(const Timeline& timeline, BlockTable& table, Ip switch_entry, bool returns_compressed);

  static constexpr uint32_t place_of(SpaceId space, ExecMode mode) { return space.value << 2 | static_cast<uint32_t>(mode); }
  static constexpr uint32_t kMaxRunBlocks = 32;
  static constexpr uint32_t kMaxMemoBlocks = 56;

  /// First version of the run at (place, ip); made, unread, if there is none.
  RunId at(uint32_t place, uint64_t ip);
  /// The same through a small cache, for targets that come again.
  RunId target_at(uint32_t place, uint64_t ip) {
    Target& target = targets_[(ip ^ ip >> 12) % kTargets];
    if (target.ip != ip || target.place != place || target.run == kNoRun) target = {ip, place, at(place, ip)};
    return target.run;
  }
  /// A version of `id`'s place that is valid throughout `now`; read if need be. Its end may be `stuck`.
  RunId version_at(RunId id, Interval now);
  [[nodiscard]] const Run& run(RunId id) const { return runs_[id]; }
  [[nodiscard]] Run& run(RunId id) { return runs_[id]; }
  [[nodiscard]] bool holds(ValidId valid, Interval now) const { return valid == 0 || intervals_[valid].contains(now); }
  /// Blocks from `first` on; at least kCopySlack may be read behind them.
  [[nodiscard]] const Block* blocks(uint32_t first) const { return blocks_.data() + first; }
  [[nodiscard]] const CallSite* calls(uint32_t first) const { return calls_.data() + first; }
  static constexpr uint32_t kCopySlack = 16;

  /// The memo of (run, group), perhaps only seen; null if there is none.
  [[nodiscard]] const Memo* memo(RunId run, uint32_t group) const {
    const MemoSet& set = memos_[set_of(run, group)];
    if (set.ways[0].run == run && set.ways[0].group == group) return &set.ways[0];
    return set.ways[1].run == run && set.ways[1].group == group ? &set.ways[1] : nullptr;
  }
  /// A slot for the memo of (run, group), which has none: marked as seen.
  void see_memo(RunId run, uint32_t group);
  /// Makes the memo of (run, group), which was seen, at `now`. Null if not even one bit can be taken.
  const Memo* make_memo(RunId run, uint32_t group, Interval now);

  [[nodiscard]] bool overgrown() const;
  void clear();
  [[nodiscard]] size_t memory_bytes() const;
  [[nodiscard]] size_t run_count() const { return runs_.size(); }
  [[nodiscard]] uint32_t memo_count() const { return memo_count_; }

 private:
  struct alignas(64) MemoSet {
    Memo ways[2];
  };
  struct Target {
    uint64_t ip = 0;
    uint32_t place = 0;
    RunId run = kNoRun;
  };
  static constexpr size_t kTargets = 4096;
  [[nodiscard]] size_t set_of(RunId run, uint32_t group) const { return ((run * 0x9e3779b1U) >> 11 ^ (group * 0x85ebU)) & memo_mask_; }
  struct Reading;
  bool read(RunId id, Interval now);
  bool fetch(Reading& reading, uint64_t ip, Interval now);
  void finish_block(Reading& reading, uint16_t flags);
  bool step(Reading& reading, RunId id, uint64_t& ip);
  ValidId valid_id(Interval valid);
  RunId add(uint32_t place, uint64_t ip);
  RunId find(uint32_t place, uint64_t ip) const;
  void grow();

  CodeView view_;
  BlockTable* table_;
  Ip switch_entry_;
  bool returns_compressed_;
  std::vector<Run> runs_;
  std::vector<RunId> slots_;  ///< open addressing by (place, ip), kNoRun: empty
  size_t used_slots_ = 0;
  std::vector<Block> blocks_;
  std::vector<CallSite> calls_;
  std::vector<Interval> intervals_;
  std::vector<ValidId> valid_slots_;
  std::vector<MemoSet> memos_;
  std::vector<Target> targets_;
  size_t memo_mask_ = 0;
  uint32_t memo_count_ = 0, evicted_ = 0;
};

}  // namespace ptd::pt
