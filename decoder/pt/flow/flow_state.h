// FlowState: the state that determines how a flow continues. Trivially copyable; copied when candidates fork.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "decoder/pt/flow/item.h"
#include "decoder/version_floors.h"
#include "ptdecode/code_view.h"
#include "ptdecode/context_track.h"
#include "ptdecode/guest.h"
#include "ptdecode/insn.h"
#include "ptdecode/timeline.h"

namespace ptd::pt {

/// The processor's return-compression stack ([SDM] "Indirect Transfer Compression for Returns (RETC)"): the last 64 calls.
///
/// Every RET pops, compressed or not: CALL and RET maintain the stack as they execute. A RET is compressed if the popped address is its
/// target.
class ReturnStack {
 public:
  void push(uint64_t ip) {
    ips_[++height_ % kDepth] = ip;
    if (count_ < kDepth) ++count_;
  }
  /// Returns false if the stack is empty.
  bool pop(uint64_t& ip) {
    if (count_ == 0) return false;
    ip = ips_[height_-- % kDepth];
    --count_;
    low_ = std::min(low_, height_);
    return true;
  }
  void clear() { count_ = 0; }
  [[nodiscard]] uint32_t count() const { return count_; }
  static constexpr uint32_t kDepth = 64;
  [[nodiscard]] bool equals(const ReturnStack& other) const {
    if (count_ != other.count_) return false;
    for (uint32_t i = 0; i < count_; ++i) {
      if (ips_[(height_ - i) % kDepth] != other.ips_[(other.height_ - i) % kDepth]) return false;
    }
    return true;
  }

  // For the Runner, which stores additional data per entry. Entries are identified by their height. Those up to low() have not changed
  // since sign() was called with the number that signature() returns.
  [[nodiscard]] uint64_t height() const { return height_; }
  [[nodiscard]] uint64_t low() const { return low_; }
  [[nodiscard]] uint64_t signature() const { return signature_; }
  [[nodiscard]] uint64_t at(uint64_t height) const { return ips_[height % kDepth]; }
  void set(uint64_t height, uint64_t ip) { ips_[height % kDepth] = ip; }
  void sign(uint64_t signature, uint64_t height, uint32_t count) {
    signature_ = signature;
    low_ = height_ = height;
    count_ = count;
  }

 private:
  std::array<uint64_t, kDepth> ips_{};
  uint64_t height_ = 0;  ///< pushes less pops; the last entry is ips_[height_ % kDepth]
  uint64_t low_ = 0;     ///< the least height_ since sign()
  uint64_t signature_ = 0;
  uint32_t count_ = 0;
};

/// Detects endless loops: a flow that begins two blocks at the same ip without consuming a packet between them loops forever. Uses Brent's
/// algorithm: one ip is stored, for twice as long each time. It is part of the flow's state, so that the result does not depend on where a
/// full batch interrupted the walk.
class SilentLoop {
 public:
  static constexpr uint64_t kQuiet = 256;            ///< instructions without a packet after which loops are searched for
  static constexpr uint64_t kLeast = 1U << 15;       ///< lower limit of instructions without a packet, however often the limit was reached
  static constexpr uint32_t kMostBlocks = 1U << 14;  ///< blocks without a packet
  static constexpr uint32_t kMostChoices = 64;       ///< choices without a packet

  /// Call at the begin of each block, with the number of instructions without a packet up to its first.
  [[nodiscard]] bool comes_back(Ip ip, ExecMode mode, uint64_t silent) {
    if (silent <= kQuiet) return false;
    if (until_ != 0 && ip == ip_ && mode == mode_) return true;
    if (silent < until_) return false;
    ip_ = ip;
    mode_ = mode;
    until_ = silent * 2;
    return false;
  }
  /// Call when a packet is consumed.
  void forget() { until_ = 0; }
  /// Call this instead of comes_back() after a choice between contents, which may lead elsewhere next time. Returns false after
  /// kMostChoices without a packet.
  [[nodiscard]] bool forget_after_choice(uint64_t silent) {
    forget();
    if (silent <= chosen_at_) choices_ = 0;
    chosen_at_ = silent;
    return ++choices_ <= kMostChoices;
  }

 private:
  Ip ip_;
  ExecMode mode_ = ExecMode::unknown;
  uint64_t until_ = 0;      ///< number of silent instructions up to which ip_ is kept (0: ip_ is not set)
  uint64_t chosen_at_ = 0;  ///< silent instructions at the last choice
  uint32_t choices_ = 0;    ///< choices since a packet was taken
};

struct FlowState {
  // Position
  Ip ip;
  bool enabled = false;      ///< tracing is on and ip is known
  bool non_root = false;     ///< in VMX non-root operation: a guest runs
  bool lost = false;         ///< flow was lost; waiting for a packet that gives its ip
  bool in_gap = false;       ///< while lost: since an error, not an overflow
  bool bits_open = false;    ///< while lost: a TNT was skipped that may contain branches that come after the next TIP's
  bool doubtful = false;     ///< the flow continued at a TIP although bits_open was set
  uint64_t whole_ip_at = 0;  ///< after a contradiction: the ips of packets up to this offset in the segment may be wrong; 0: they are right
  ExecMode mode = ExecMode::unknown;
  bool interrupts = false;     ///< RFLAGS.IF, known only with event trace
  Context context;             ///< thread and user address space; of a guest while one runs
  uint32_t switches = 0;       ///< context switches passed (ContextFollower), at least
  uint32_t most_switches = 0;  ///< and at most, since the flow may have passed some unseen
  bool thread_open = false;    ///< the flow may be of several threads, or of several programs of its thread
  bool program_open = false;   ///< the thread may have called exec or not
  Ip given_ip;                 ///< the last place that a packet gave the flow; 0: none since it was lost
  Ip disabled_at;              ///< where tracing would resume after it was last disabled; 0: unknown

  // Pending items of the trace
  uint64_t next = 0;      ///< first item not yet taken
  uint64_t tnt_item = 0;  ///< item that `tnt` came from
  uint64_t tnt = 0;       ///< branches not yet taken, the oldest in bit (tnt_count - 1)
  uint32_t tnt_count = 0;
  uint64_t stop_ip = 0;  ///< ip that the head item is bound to (if has_stop)
  bool has_stop = false;
  bool counts_down = false;  ///< the head item is due after `countdown` more instructions
  uint64_t countdown = 0;
  uint64_t position = 0;       ///< branches, targets and events taken so far
  uint64_t silent = 0;         ///< instructions since something was taken
  uint32_t silent_blocks = 0;  ///< blocks begun since something was taken
  uint64_t unanchored = 0;     ///< instructions before those of `silent`, since an anchor was taken (ItemKind::after_insns)
  SilentLoop loop;

  // Time
  /// Bounds for the next fetch. Between two synchronisations it sees the same code, so they may begin later than its moment.
  Interval now;
  TimeNs moment_first;  ///< lower bound of its moment; now.last is the upper one
  [[nodiscard]] Interval moment() const { return {moment_first, now.last}; }
  TimeNs not_before;  ///< known from version choices
  Floors floors;
  uint64_t dated = kNever;  ///< `next` when `now` was set for `tnt_item`; kNever: it was not, or not for the last time
  bool mark_due = true;     ///< `now`, the context or the mode may differ from those of the last mark
  static constexpr uint64_t kNever = ~uint64_t{0};
  uint32_t spans_passed = 0;  ///< sync points passed (DecoderOptions::sync_points)

  ReturnStack returns;
  bool calls_unseen = false;  ///< the processor's stack may hold calls below `returns` that were made before the flow was found

  /// Call when something was taken.
  void end_silence() {
    silent = silent_blocks = 0;
    loop.forget();
  }
};

}  // namespace ptd::pt
