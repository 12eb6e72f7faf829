// Follower::spend(): the fast path. Atoms go from run to run by links; whatever is not plain is left to atom().
#include <algorithm>

#include "decoder/arm/follower.h"

namespace ptd::arm {

/// Where the flow stands between two atoms.
struct Follower::Spending {
  uint32_t run = 0;      ///< where it goes on; 0: not known by index
  uint32_t left = 0;     ///< the run before
  uint32_t branch = 0;   ///< the last run whose branch was taken by an atom; 0: none
  bool taken = false;    ///< the branch of `left` was
  bool pending = false;  ///< it was an indirect one: where it went is on the return stack, or comes as an address
  bool jumped = false;   ///< a direct branch or a return was taken
  bool stale = false;    ///< the bytes at `ip` changed meanwhile
  Ip ip;
};

/// Goes where the return stack says, if the run there is known.
bool Follower::spend_return(Spending& state) {
  ReturnStack::Entry entry;
  if (!config_.has_return_stack() || !returns_.peek(entry) || entry.call == 0 || entry.mode != mode_) return false;
  const uint32_t run = runs_->step(entry.call).next[0];
  const Step& step = runs_->step(run);
  const bool same = step.ip == entry.ip && step.mode == entry.mode && step.space == (is_kernel_half(entry.ip) ? kKernelSpace : space_);
  if (run == 0 || !same) return false;
  (void)returns_.pop(entry);
  state.run = run;
  state.pending = false;
  state.jumped = true;
  return true;
}

uint32_t Follower::spend(uint64_t atoms, uint32_t count) {
  if (need_context_ || has_exception_ || starting_ || (need_address_ && !pop_pending_)) return 0;
  if (!need_address_) {
    if (run_ == 0) find_run();
    const Step& first = runs_->step(run_);
    if (!first.plain[0] && !first.plain[1]) return 0;
  }
  Spending state;
  state.run = need_address_ ? 0 : run_;
  state.left = left_;
  state.taken = left_taken_;
  state.pending = need_address_;
  const Interval now = when();
  const bool changes = runs_->changes(), stack = config_.has_return_stack() && push_allowed_;
  const uint16_t doubt = doubtful_ ? static_cast<uint16_t>(BlockFlag::suspect) : uint16_t{0};
  const size_t before = out_->blocks.size();
  out_->blocks.resize(before + count);
  Block* out = out_->blocks.data() + before;
  uint32_t done = 0;
  while (done < count) {
    if (state.pending && !spend_return(state)) break;
    if (state.run == 0) break;
    const Step& step = runs_->step(state.run);
    if (changes && !fresh_ && !step.certain.contains(now)) {
      state.stale = true;
      state.ip = step.ip;
      break;
    }
    const bool executed = (atoms & 1) != 0;
    if (!step.plain[executed ? 1 : 0]) break;
    fresh_ = false;
    *out++ = {step.node, step.instructions, static_cast<uint16_t>(step.flags[executed ? 1 : 0] | doubt)};
    atoms >>= 1;
    ++done;
    state.left = state.run;
    state.taken = executed && step.branch;
    state.run = step.next[state.taken ? 1 : 0];
    if (!state.taken) continue;
    state.branch = state.left;
    if (stack && step.link) returns_.push({runs_->run(state.left).end, step.mode, state.left});
    state.pending = step.indirect;
    state.jumped |= !step.indirect;
  }
  out_->blocks.resize(before + done);
  if (done != 0) {
    if (mark_due_ || mode_ != marked_mode_) put_mark(before);
    flowing_ = walked_ = true;
    from_branch_ = state.taken;
  }
  if (done != 0 || state.jumped || state.stale) spent(state);
  return done;
}

/// Where the flow stands behind the atoms.
void Follower::spent(const Spending& state) {
  left_ = state.left;
  left_taken_ = state.taken;
  run_ = state.stale || state.pending ? 0 : state.run;
  need_address_ = state.pending;
  pop_pending_ = state.pending && config_.has_return_stack();
  if (state.branch != 0) branch_ip_ = runs_->run(state.branch).last_ip;
  if (state.jumped) isa_ = mode_ == ExecMode::t32 ? 1 : 0;
  if (state.stale) {
    ip_ = state.ip;
  } else if (run_ != 0) {
    ip_ = runs_->step(run_).ip;
  } else {
    const Run& left = runs_->run(left_);
    ip_ = state.taken && !state.pending ? left.target : left.end;
  }
}

}  // namespace ptd::arm
