// RunnerCode: static code as the Runner sees it: straight runs of blocks, decoded once a version and linked, and memos of groups of
// branches.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "decoder/pt/runner/runner_memo.h"
#include "ptdecode/code_view.h"
#include "ptdecode/flow.h"
#include "ptdecode/insn.h"
#include "ptdecode/timeline.h"

namespace ptd::pt {

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
struct alignas(64) BlockRun {
  static constexpr uint32_t kHead = 2;
  uint64_t ip = 0;
  std::array<Block, kHead> head;  ///< its first blocks once more: most have no others
  RunId next[2] = {};             ///< jcc: not taken, taken. indirect: see after_call()
  uint32_t place = 0;             ///< space and mode, see RunnerCode::place_of
  uint32_t blocks_first = 0;      ///< RunnerCode::blocks(), with `taken` left out at a jcc
  RunId first = kNoRun;           ///< first version of the same place; kNoRun: this one
  RunId sibling = kNoRun;         ///< the next version
  ValidId valid = 0;
  uint32_t calls_first = 0;  ///< see RunnerCode::calls(); of one call: the run itself
  uint16_t instructions = 0;
  uint8_t blocks = 0;
  uint8_t calls = 0;  ///< return addresses that it pushes, oldest first
  RunEnd end = RunEnd::unread;
  bool ends_in_kernel = false;  ///< its last instruction is in the kernel's half
  uint8_t met = 0;              ///< by Runner::take_timed(), up to a bound

  /// Of an indirect or ret: the address after an indirect call, at which its TIP cannot lead; else 0.
  [[nodiscard]] uint64_t after_call() const { return uint64_t{next[1]} << 32 | next[0]; }
};
static_assert(sizeof(BlockRun) == 64);

/// Owner of runs and memos of one decoder. Not thread-safe. Grows by what is new in the trace; clear() when overgrown().
class RunnerCode {
 public:
  RunnerCode(const Timeline& timeline, BlockTable& table, Ip switch_entry, bool returns_compressed);
  ~RunnerCode();

  static constexpr uint32_t place_of(SpaceId space, ExecMode mode) { return space.value << 2 | static_cast<uint32_t>(mode); }
  static constexpr uint32_t kMaxRunBlocks = 32;

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
  [[nodiscard]] const BlockRun& run(RunId id) const { return runs_[id]; }
  [[nodiscard]] BlockRun& run(RunId id) { return runs_[id]; }
  [[nodiscard]] bool holds(ValidId valid, Interval now) const { return valid == 0 || intervals_[valid].contains(now); }
  /// Blocks from `first` on; at least kCopySlack may be read behind them.
  [[nodiscard]] const Block* blocks(uint32_t first) const { return blocks_.data() + first; }
  /// Runs at the return addresses of the calls that a run pushes, oldest first.
  [[nodiscard]] const RunId* calls(const BlockRun& run) const {
    return run.calls == 1 ? &run.calls_first : calls_.data() + run.calls_first;
  }
  static constexpr uint32_t kCopySlack = 16;

  [[nodiscard]] MemoTable& memos() { return memos_; }
  /// Makes the memo of `run` and the `count` bits on top of `window` as they are at `now`. False if not even one bit can be taken, or if
  /// more than are known would be.
  bool make_memo(RunId run, uint64_t window, uint32_t count, Interval now);

  [[nodiscard]] bool overgrown() const;
  void clear();
  [[nodiscard]] size_t memory_bytes() const;
  [[nodiscard]] size_t run_count() const { return runs_.size(); }

 private:
  struct Target {
    uint64_t ip = 0;
    uint32_t place = 0;
    RunId run = kNoRun;
  };
  static constexpr size_t kTargets = 4096;
  struct Reading;
  /// Of the table of places: part of the hash, so that only what is wanted is looked at.
  struct Slot {
    uint32_t tag = 0;
    RunId run = kNoRun;  ///< kNoRun: empty
  };
  void read(RunId id, Interval now);
  /// Instructions of a run whose bytes change, and when the others stand. Where these are as they were, the run is.
  struct Changing {
    uint64_t ip = 0;
    std::array<std::byte, kFetchSpanBytes> bytes{};
    uint8_t length = 0;
    uint16_t flags = 0;
  };
  struct Checks {
    Interval others;
    uint32_t first = 0, count = 0;  ///< of changing_
  };
  /// What stands at an instruction of Changing now.
  struct Looked {
    Changing found;  ///< length 0: not certain
    uint64_t ip = 0;
    uint8_t length = 0;
    Interval certain;
  };
  const Looked& look(uint32_t place, const Changing& wanted, Interval now);
  enum class Compared : uint8_t { same, differs, uncertain };
  Compared compare(RunId id, Interval now);
  RunId known_version(RunId first, Interval now, Compared& compared);
  RunId place_for(RunId id);
  void keep_checks(RunId id, const Reading& reading);
  bool read_known(RunId id, const Reading& reading);
  bool fetch(Reading& reading, uint64_t ip, Interval now);
  bool fetch_plain(Reading& reading, uint64_t ip, Interval now);
  [[nodiscard]] RunId first_version(RunId id) const { return runs_[id].first != kNoRun ? runs_[id].first : id; }
  void finish_block(Reading& reading, uint16_t flags);
  bool step(Reading& reading, RunId id, uint64_t& ip);
  ValidId valid_id(Interval valid);
  RunId append(const BlockRun& run);
  void grow();

  CodeView view_;
  BlockTable* table_;
  Ip switch_entry_;
  bool returns_compressed_;
  std::vector<BlockRun> runs_;
  std::vector<Slot> slots_;  ///< open addressing by (place, ip)
  size_t used_slots_ = 0;
  std::vector<Block> blocks_;
  std::vector<RunId> calls_;
  std::vector<Interval> intervals_;
  std::vector<ValidId> valid_slots_;
  MemoTable memos_;
  std::vector<uint32_t> check_ids_;  ///< by run, of checks_; 0: none
  std::vector<Checks> checks_;
  std::vector<Changing> changing_;
  std::vector<Looked> looked_;  ///< scratch of known_version()
  std::vector<Target> targets_;
  std::unique_ptr<Reading> reading_;
};

}  // namespace ptd::pt
