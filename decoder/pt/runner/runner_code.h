// RunnerCode: static code for the Runner: straight runs of blocks, decoded once per version and linked, and memos for groups of branches.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "decoder/pt/runner/runner_memo.h"
#include "decoder/pt/runner/zeroed_array.h"
#include "ptdecode/code_view.h"
#include "ptdecode/flow.h"
#include "ptdecode/insn.h"
#include "ptdecode/timeline.h"

namespace ptd::pt {

/// What ends a straight run.
enum class RunEnd : uint8_t {
  unread,    ///< the code was not read yet
  stuck,     ///< the exact walker must continue: uncertain bytes, or an instruction that needs it
  jcc,       ///< a branch bit: next[bit]
  ret,       ///< near RET: a branch bit with a call on the stack, or a TIP
  indirect,  ///< a TIP
  link,      ///< takes nothing: the run was long enough, or the next code is in the other half of the address space. next[0]
};

/// A straight run: the blocks from an ip up to and including the first branch that takes something from the trace. Direct jumps and calls
/// are followed inside it. There is one run per version of its bytes; those of one place are chained.
struct alignas(64) BlockRun {
  static constexpr uint32_t kHead = 2;
  uint64_t ip = 0;
  std::array<Block, kHead> head;  ///< a copy of its first blocks, which are nearly always all of them
  RunId next[2] = {};             ///< jcc: not taken, taken. indirect: the last target; of a call: the run after it
  uint32_t place = 0;             ///< space and mode, see RunnerCode::place_of
  uint32_t blocks_first = 0;      ///< RunnerCode::blocks(), without `taken` at a jcc
  uint32_t calls_first = 0;       ///< see RunnerCode::calls(); for a single call: the run itself
  ValidId valid = 0;
  uint32_t epoch = 0;  ///< the last epoch in which it was found valid, see RunnerCode::is_valid()
  uint16_t instructions = 0;
  uint8_t blocks = 0;
  uint8_t calls = 0;  ///< number of return addresses that it pushes
  RunEnd end = RunEnd::unread;
  bool ends_in_kernel = false;  ///< its last instruction is in the kernel half
  uint8_t met = 0;              ///< visits by Runner::take_timed(), up to kMetForMemos
  uint8_t branch_bytes = 0;     ///< size of the near indirect branch or near RET that ends it; 0: it ends otherwise
};
static_assert(sizeof(BlockRun) == 64);

/// Owns the runs and memos of one decoder. Not thread-safe. Grows with new code in the trace; call clear() when overgrown().
class RunnerCode {
 public:
  RunnerCode(const Timeline& timeline, BlockTable& table, Ip switch_entry, bool returns_compressed);
  ~RunnerCode();

  static constexpr uint32_t place_of(SpaceId space, ExecMode mode) { return space.value << 2 | static_cast<uint32_t>(mode); }
  static constexpr uint32_t kMaxRunBlocks = 32;

  /// Returns the first version of the run at (place, ip). Creates it, unread, if there is none.
  RunId at(uint32_t place, uint64_t ip);
  /// Same, but through a small cache, for repeated targets.
  RunId target_at(uint32_t place, uint64_t ip) {
    Target& target = targets_[(ip ^ ip >> 12) % kTargets];
    if (target.ip != ip || target.place != place || target.run == kNoRun) target = {ip, place, at(place, ip)};
    return target.run;
  }
  /// Returns the address after the indirect call that ends the run, which cannot be its target; 0 if the run ends otherwise.
  [[nodiscard]] uint64_t after_call(const BlockRun& run) const { return run.end == RunEnd::indirect ? runs_[run.next[1]].ip : 0; }
  /// Returns a version of `id` that is valid throughout `now`; reads it if needed. Its end may be `stuck`.
  RunId version_at(RunId id, Interval now) {
    const BlockRun& run = runs_[id];
    return run.end != RunEnd::unread && holds(run.valid, now) ? id : other_version(id, now);
  }
  /// Begins a new epoch unless the current one contains `now`. The time of an epoch is within the validity of all runs that were checked in
  /// it, so each run is checked once in it.
  void set_time(Interval now) {
    if (!epoch_time_.contains(now)) begin_epoch();
  }
  [[nodiscard]] bool is_in_epoch(Interval now) const { return epoch_time_.contains(now); }
  /// Returns whether the run is readable and valid in the current epoch, if that is known. Else check_valid() must find out.
  [[nodiscard]] bool is_valid(const BlockRun& run) const { return run.epoch == epoch_; }
  /// Returns a version of `id` that can be followed throughout `now`, which the current epoch contains; kNoRun if there is none.
  RunId check_valid(RunId id, Interval now);
  /// Same, but kNoRun also if check_valid() may find a version for a part of `now`.
  RunId check_lasting(RunId id, Interval now) {
    if (is_unread(id)) {
      read(id, now);
      if (runs_[id].end == RunEnd::stuck) runs_[id].end = RunEnd::unread;
    }
    for (RunId one = first_version(id); one != kNoRun; one = versions_[one].sibling) {
      if (runs_[one].end > RunEnd::stuck && holds(runs_[one].valid, now)) return check_valid(one, now);
    }
    return kNoRun;
  }
  [[nodiscard]] const BlockRun& run(RunId id) const { return runs_[id]; }
  [[nodiscard]] BlockRun& run(RunId id) { return runs_[id]; }
  [[nodiscard]] bool holds(ValidId valid, Interval now) const { return valid == 0 || intervals_[valid].contains(now); }
  /// Returns the blocks from `first` on; at least kCopySlack more may be read.
  [[nodiscard]] const Block* blocks(uint32_t first) const { return blocks_.data() + first; }
  /// Returns the runs at the return addresses of the calls that a run pushes, oldest first.
  [[nodiscard]] const RunId* calls(const BlockRun& run) const {
    return run.calls == 1 ? &run.calls_first : calls_.data() + run.calls_first;
  }
  static constexpr uint32_t kCopySlack = 16;

  [[nodiscard]] MemoTable& memos() { return memos_; }
  /// Creates the memo of `run` for the `count` bits on top of `window`, valid at `now`. Returns false if not even one bit can be taken, or
  /// if the memo would depend on more than `count` bits.
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
  /// An entry of the hash table by (place, ip). The tag is the hash, so that other runs are rarely read, and none when the table grows.
  struct Slot {
    uint32_t tag = 0;
    RunId run = kNoRun;  ///< kNoRun: empty
  };
  RunId other_version(RunId id, Interval now);
  void read(RunId id, Interval now);
  /// An instruction of a run whose bytes change over time. A run is valid if these match and the others are valid (Checks::others).
  struct Changing {
    uint64_t ip = 0;
    std::array<std::byte, kFetchSpanBytes> bytes{};
    uint8_t length = 0;
    uint16_t flags = 0;
  };
  struct Checks {
    Interval others;
    uint32_t first = 0, count = 0;  ///< range in changing_
  };
  /// The current content at the address of a Changing.
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
  /// How a run is related to the other versions of its place.
  struct Version {
    RunId first = kNoRun;    ///< the first version; kNoRun: this one
    RunId sibling = kNoRun;  ///< the next version
    uint32_t checks = 0;     ///< index in checks_; 0: none
  };
  [[nodiscard]] RunId first_version(RunId id) const { return versions_[id].first != kNoRun ? versions_[id].first : id; }
  [[nodiscard]] bool is_unread(RunId id) const {
    return runs_[id].end == RunEnd::unread && versions_[id].first == kNoRun && versions_[id].sibling == kNoRun;
  }
  void begin_epoch();
  void read_straight(Reading& reading, uint64_t& ip);
  void finish_block(Reading& reading, uint16_t flags);
  bool step(Reading& reading, RunId id, uint64_t& ip);
  ValidId valid_id(Interval valid);
  RunId append(const BlockRun& run);
  void grow();

  uint32_t epoch_ = 1;
  Interval epoch_time_;
  CodeView view_;
  BlockTable* table_;
  Ip switch_entry_;
  bool returns_compressed_;
  ZeroedArray<BlockRun> runs_;
  ZeroedArray<Slot> slots_;  ///< open addressing by (place, ip)
  size_t used_slots_ = 0;
  ZeroedArray<Block> blocks_;
  std::vector<RunId> calls_;
  std::vector<Interval> intervals_;
  std::vector<ValidId> valid_slots_;
  ValidId last_valid_ = 0;  ///< the last result of valid_id()
  bool cleared_ = false;    ///< code may be read a second time, so its blocks must be found
  MemoTable memos_;
  ZeroedArray<Version> versions_;  ///< by run
  std::vector<Checks> checks_;
  std::vector<Changing> changing_;
  std::vector<Looked> looked_;      ///< scratch of known_version()
  ZeroedArray<Target, 1> targets_;  ///< by hash; a trace with few indirect branches writes to little of it
  std::unique_ptr<Reading> reading_;
};

}  // namespace ptd::pt
