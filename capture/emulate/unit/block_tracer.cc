// BlockTracer: derives what a block did from its successor.
#include "capture/emulate/unit/block_tracer.h"

namespace ptd::emulate {
namespace {

// Whether a far transfer of user code leads to user code: programs have no call gates, and IRET cannot raise the privilege.
bool stays_in_user_code(InsnDetail detail) {
  switch (detail) {
    case InsnDetail::far_call:
    case InsnDetail::far_jump:
    case InsnDetail::far_ret:
    case InsnDetail::iret:
    case InsnDetail::uiret:
      return true;
    default:
      return false;
  }
}

}  // namespace

void BlockTracer::retire(const Block& block, unsigned count) {
  if (count == block.insns) return retire_all(block);
  if (count == 0) return;
  counts_.insns += count;
  ++counts_.blocks;
  if (truth_ != nullptr) truth_->part(block.number, 0, count);
}

void BlockTracer::psb(uint64_t ip) {
  encoder_.psb(ip);
  if (truth_ != nullptr && !encoder_.losing()) truth_->psb(encoder_.last_psb_offset(), encoder_.time());
}

void BlockTracer::stamp() {
  if (truth_ == nullptr || stamp_due_ == kNever) return;
  stamp_due_ = encoder_.time() + kStampTicks;
  truth_->time(encoder_.time());
}

void BlockTracer::slow_begin(const Block& block) {
  encoder_.set_mode(block.mode);
  if (lose_blocks_ != 0 && encoder_.enabled()) {
    if (!encoder_.losing()) {
      ++counts_.overflows;
      encoder_.lose();
      if (truth_ != nullptr) truth_->lose();
    } else if (--lose_blocks_ == 0) {
      encoder_.recover(block.ip);
      if (truth_ != nullptr) truth_->recover();
      psb(block.ip);
      return;
    }
  }
  if (!encoder_.losing() && encoder_.pause_due()) encoder_.disable_async(block.ip);
  if (!encoder_.losing() && encoder_.psb_due()) psb(block.ip);
  if (!encoder_.enabled() || encoder_.time() >= stamp_due_) stamp();
  encoder_.enable(block.ip);
}

// True if the whole block retired and its last instruction leads to `next`; its packet is then written.
bool BlockTracer::retire_whole(const Block& block, uint64_t next, const Block* next_block) {
  switch (block.kind) {
    case BlockEnd::plain:
      if (next != block.end) return false;
      break;
    case BlockEnd::jump:
      if (next != block.target) return false;
      break;
    case BlockEnd::jcc:
      if (next != block.target && next != block.end) return false;
      encoder_.conditional(next != block.end);
      break;
    case BlockEnd::call_next:
    case BlockEnd::call:
      if (next != block.target) return false;
      if (block.kind == BlockEnd::call) encoder_.call(block.end);
      break;
    case BlockEnd::indirect_call:
      encoder_.indirect(next);
      encoder_.call(block.end);
      break;
    case BlockEnd::indirect:
      encoder_.indirect(next);
      break;
    case BlockEnd::ret:
      encoder_.ret(next);
      break;
    case BlockEnd::software_interrupt:
      retire(block, block.insns - 1U);
      ++counts_.events;
      if (truth_ != nullptr) truth_->event(TruthEvent::software_interrupt, block.last_ip);
      if (kernel_traced_) {
        encoder_.async_branch(block.last_ip, next, next_block != nullptr ? next_block->mode : block.mode);
      } else {
        encoder_.disable_async(block.last_ip);
      }
      return true;
    case BlockEnd::far:
      if (kernel_traced_ || stays_in_user_code(block.detail)) {
        encoder_.far_transfer(next, next_block != nullptr ? next_block->mode : block.mode);
        if (block.detail == InsnDetail::far_call || block.detail == InsnDetail::far_ret) encoder_.forget_calls();
      } else {
        encoder_.disable_at_branch();
      }
      break;
  }
  retire_all(block);
  return true;
}

void BlockTracer::complete(uint64_t next, const Block* next_block) {
  if (current_ == nullptr) return;
  const Block& block = *current_;
  current_ = nullptr;
  const int inside = next >= block.ip && next < block.end ? block.index_of(next) : -1;
  const bool to_itself =
      next == block.last_ip && block.kind != BlockEnd::plain && block.kind != BlockEnd::software_interrupt && block.kind != BlockEnd::far;
  // An instruction that changes the code after it is executed again, in a separate block: also the first one of a block.
  const bool alone = inside >= 0 && block.insns > 1 && !to_itself && next_block != nullptr && next_block->single_plain;
  const bool again = inside >= 0 && inside == block.insns - 1 && block.kind == BlockEnd::plain;
  if (!alone && !again && retire_whole(block, next, next_block)) return;
  if (inside >= 0) {
    ++counts_.stops_inside;
    return retire(block, static_cast<unsigned>(inside));
  }
  irregular(next);
}

void BlockTracer::restart(uint64_t ip, uint64_t tsc) {
  if (current_ == nullptr) return;
  const int inside = current_->index_of(ip);
  if (inside < 0) return;
  encoder_.set_time(tsc);
  ++counts_.stops_inside;
  retire(*current_, static_cast<unsigned>(inside));
  current_ = nullptr;
}

// Where it went is unknown: as after an overflow, the flow continues at `next`.
void BlockTracer::irregular(uint64_t next) {
  ++counts_.irregular;
  if (!encoder_.enabled() || encoder_.losing()) return;
  encoder_.lose();
  encoder_.recover(next);
  if (truth_ == nullptr) return;
  truth_->lose();
  truth_->recover();
}

void BlockTracer::leave_async(const AsyncEvent& event, uint64_t tsc) {
  encoder_.set_time(tsc);
  if (current_ != nullptr) {
    const Block& block = *current_;
    const int inside = event.inside ? block.index_of(event.ip) : -1;
    if (inside >= 0) {
      current_ = nullptr;
      retire(block, static_cast<unsigned>(inside));
    } else if (block.kind == BlockEnd::software_interrupt && (event.ip == block.last_ip || event.ip == block.end)) {
      complete(block.end, nullptr);
      return;  // reported as a separate event
    } else {
      complete(event.ip, nullptr);
    }
  }
  if (!encoder_.enabled()) return;
  ++counts_.events;
  if (truth_ != nullptr) truth_->event(TruthEvent::interrupt, event.ip);
  encoder_.disable_async(event.ip);
  stamp();
}

void BlockTracer::enter_handler(const Block& block, const AsyncEvent& event, uint64_t tsc) {
  if (!kernel_traced_) {
    leave_async(event, tsc);
    return begin(block);
  }
  encoder_.set_time(tsc);
  if (current_ != nullptr) {
    const Block& last = *current_;
    const int inside = event.inside ? last.index_of(event.ip) : -1;
    if (last.kind == BlockEnd::software_interrupt && (event.ip == last.last_ip || event.ip == last.end)) {
      complete(block.ip, &block);
      return begin(block);
    }
    if (inside >= 0) {
      current_ = nullptr;
      retire(last, static_cast<unsigned>(inside));
    } else {
      complete(event.ip, nullptr);
    }
  }
  ++counts_.events;
  if (truth_ != nullptr) truth_->event(TruthEvent::interrupt, event.ip);
  encoder_.async_branch(event.ip, block.ip, block.mode);
  begin(block);
}

void BlockTracer::leave(uint64_t tsc) {
  encoder_.set_time(tsc);
  if (current_ == nullptr) return;
  const Block& block = *current_;
  current_ = nullptr;
  retire_all(block);
  encoder_.disable_at_branch();
  stamp();
}

void BlockTracer::cr3_written(uint64_t cr3, uint64_t tsc) {
  encoder_.set_time(tsc);
  if (current_ != nullptr) {
    const Block& block = *current_;
    current_ = nullptr;
    retire_all(block);
  }
  encoder_.cr3_written(cr3);
}

void BlockTracer::stop() {
  current_ = nullptr;
  const bool losing = encoder_.losing();
  encoder_.stop();
  if (truth_ == nullptr) return;
  if (losing) truth_->recover();
  truth_->end();
}

}  // namespace ptd::emulate
