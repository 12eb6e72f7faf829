// BlockTracer: converts the sequence of blocks that a thread or vcpu enters to packets and ground truth.
#pragma once

#include <cstdint>

#include "capture/emulate/unit/block.h"
#include "capture/emulate/unit/pt_encoder.h"
#include "capture/emulate/unit/truth_log.h"

namespace ptd::emulate {

/// An asynchronous event between two instructions.
struct AsyncEvent {
  uint64_t ip = 0;      ///< the instruction before which it came; of a software interrupt the instruction itself
  bool inside = false;  ///< a fault of an instruction of the block that was entered last, at or before its end
};

/// An emulator says when a block is entered, not whether it ran to its end: what a block did is known when the next one is entered. Rules:
/// - the next block starts at the last instruction of this one, which is no branch to itself: that instruction did not retire (one round of
///   a REP, or a block that was reported and not run);
/// - it starts at another instruction inside: this block stopped there (code that modifies itself, faults);
/// - a block of a single plain instruction inside this one is such a stop even where a branch of this one leads there too: the emulator
///   runs the instruction that modifies code alone.
/// An emulator that knows that it left a block calls restart(), and none of these rules is needed.
/// Anything else that does not follow is `irregular`: packets are lost up to there, honestly, and counted.
class BlockTracer {
 public:
  /// `truth` may be null. `kernel_traced`: far transfers to the kernel go on being traced; else they end in TIP.PGD and the next block
  /// begins with TIP.PGE. All must outlive the tracer.
  BlockTracer(PtEncoder& encoder, TruthLog* truth, bool kernel_traced) : encoder_(encoder), truth_(truth), kernel_traced_(kernel_traced) {}

  /// Notes the time in the ground truth at each pause of the trace and every kStampTicks: for trace units whose packets are made of it.
  void note_times() { stamp_due_ = 0; }

  /// `block` begins. `now()` returns the TSC. It is called where a packet may need it, and once in kMostUntimedBlocks other blocks.
  template <class Now>
  void enter(const Block& block, Now&& now) {
    if (current_ != nullptr) {
      if (current_->kind == BlockEnd::plain || current_->kind == BlockEnd::jump || current_->kind == BlockEnd::call) {
        const uint64_t due = current_->kind == BlockEnd::plain ? current_->end : current_->target;
        if (block.ip == due && !block.single_plain) {
          if (current_->kind == BlockEnd::call) encoder_.call(current_->end);
          retire_all(*current_);
          if (++untimed_blocks_ >= kMostUntimedBlocks) {  // a loop without conditional branches gets its MTC and PSB packets too
            untimed_blocks_ = 0;
            encoder_.set_time(now());
          }
        } else {
          encoder_.set_time(now());
          complete(block.ip, &block);
        }
      } else {
        encoder_.set_time(now());
        if (current_->kind == BlockEnd::jcc && !block.single_plain && (block.ip == current_->target || block.ip == current_->end)) {
          encoder_.conditional(block.ip != current_->end);
          retire_all(*current_);
        } else {
          complete(block.ip, &block);
        }
      }
    }
    if (!encoder_.enabled() || encoder_.psb_due() || encoder_.pause_due() || lose_blocks_ != 0 || encoder_.time() >= stamp_due_) {
      encoder_.set_time(now());
      slow_begin(block);
    }
    current_ = &block;
  }

  /// The emulator left the block entered last before its instruction at `ip`, which did not run and which the next block begins with.
  void restart(uint64_t ip, uint64_t tsc);
  /// A PSB+ before the block that was just entered, which ran nothing yet.
  void sync(const Block& block) { psb(block.ip); }
  /// A PSB+ where nothing is traced.
  void sync_outside() { psb(0); }
  /// An interrupt, exception, software interrupt or signal came at event.ip; its handler `block` begins. If the kernel is not traced, the
  /// event itself is FUP, TIP.PGD and the handler TIP.PGE.
  void enter_handler(const Block& block, const AsyncEvent& event, uint64_t tsc);
  /// The block entered last is left for what is not traced, by its last instruction (SYSCALL).
  void leave(uint64_t tsc);
  /// The same, by an event.
  void leave_async(const AsyncEvent& event, uint64_t tsc);
  /// CR3 was written by the block entered last, which ends with MOV CR3 and retired.
  void cr3_written(uint64_t cr3, uint64_t tsc);
  /// The emulation ends; what the last entered block did is unknown and not recorded.
  void stop();

  /// Packets are lost from the next block on, for `blocks` blocks.
  void overflow(uint64_t blocks) { lose_blocks_ = blocks; }
  [[nodiscard]] const Block* current() const { return current_; }
  struct Counts {
    uint64_t insns = 0, blocks = 0, irregular = 0, events = 0, stops_inside = 0;
    uint64_t overflows = 0;  ///< those that overflow() requested
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  void begin(const Block& block) {
    slow_begin(block);
    current_ = &block;
  }
  void retire_all(const Block& block) {
    counts_.insns += block.insns;
    ++counts_.blocks;
    if (truth_ != nullptr) truth_->block(block.number);
  }
  void retire(const Block& block, unsigned count);
  void slow_begin(const Block& block);
  /// The flow goes on at `next`: tells what the current block did. `block`: what begins there, null if nothing does.
  void complete(uint64_t next, const Block* block);
  [[nodiscard]] bool retire_whole(const Block& block, uint64_t next, const Block* next_block);
  void irregular(uint64_t next);
  void psb(uint64_t ip);
  void stamp();

  PtEncoder& encoder_;
  TruthLog* truth_;
  bool kernel_traced_;
  static constexpr uint32_t kMostUntimedBlocks = 1024;
  static constexpr uint64_t kStampTicks = 1U << 14, kNever = ~uint64_t{0};
  const Block* current_ = nullptr;
  uint64_t stamp_due_ = kNever;  ///< when the ground truth is to note the time
  uint32_t untimed_blocks_ = 0;  ///< blocks that ended in no branch or a direct one, since they last called now()
  uint64_t lose_blocks_ = 0;
  Counts counts_;
};

}  // namespace ptd::emulate
