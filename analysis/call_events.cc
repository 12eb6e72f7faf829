// CallFlow: steps from events: pauses, interrupts, and branches out of the traced code. See call_flow.h.
#include <optional>
#include <utility>

#include "analysis/call_flow.h"

namespace ptd {

// The segment before was the last one of its snapshot or AUX sample.
void CallFlow::end_window() {
  pending_.reset();
  drop_unproved();
  prove();
  FlowStep step;
  step.kind = FlowKind::pause;
  step.flags = kFlowWindow;
  push(step);
  stop();
  paused_ = halted_ = false;
}

void CallFlow::stop() {
  flowing_ = false;
  dates_.set_flowing(false);
}

// The core sleeps, up to the next instruction or interrupt.
void CallFlow::halt(Ip next) {
  FlowStep step;
  step.kind = FlowKind::pause;
  step.flags = kFlowHalted;
  step.return_to = next;
  push(step);
  stop();
  paused_ = halted_ = true;
}

// The branch left the traced region; `to` is 0 where no packet gives it.
void CallFlow::resolve_unseen(Ip to) {
  const FoundFunction at = to.value != 0 ? find(to) : FoundFunction{};
  const bool far_call = pending_->way == Way::far_call;
  if (pending_->way == Way::jump) {
    pending_.reset();
    return;
  }
  const size_t before = out_.size();
  resolve(at, to);
  if (out_.size() == before || held_count() == 0) return;
  out_.back().flags |= kFlowUnseen;
  if (to.value == 0) out_.back().function = far_call ? kernel_ : kNoFunction;
}

void CallFlow::take_event(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0, has_to = (event.flags & kEventHasTo) != 0;
  const bool known = is_dated(event);
  switch (event.kind) {
    case EventKind::async_branch:
      return take_async_branch(event);
    case EventKind::disabled:
    case EventKind::async_disabled:
      return take_disabled(event);
    case EventKind::enabled: {
      if ((event.flags & kEventStatus) != 0 && (flowing_ || pending_)) return;
      pending_.reset();
      // A packet with a cycle count dates the resume; otherwise tracing resumed at some time after its last timing packet.
      const bool exact = known && dates_.last_count() && event.cycles > *dates_.last_count();
      if (known) take_packet_time(likeliest(event), event.cycles);
      done_by_ = !known ? kTimeMax : exact ? likeliest(event) : latest(event);
      if (has_to) begin(event.to, exact);
      return bound(done_by_);
    }
    case EventKind::skipped:  // time passes in this code, without a block
      if (pending_ && has_from) resolve(find(event.from), event.from);
      if (known) take_packet_time(likeliest(event), event.cycles);
      return;
    case EventKind::ptwrite:
      return take_ptwrite(event);
    default:
      return;
  }
}

void CallFlow::take_async_branch(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0;
  if ((event.flags & kEventHasTo) == 0) return leave_traced(event);
  if (pending_ && has_from) resolve(find(event.from), event.from);
  pending_.reset();
  if (is_dated(event)) take_flow_time(event);
  done_by_ = is_dated(event) ? latest(event) : kTimeMax;
  const bool is_call = flowing_ && (event.flags & kEventSyscall) != 0;  // else its place is not proved
  if (!flowing_ && has_from) begin(event.from, false, halted_ ? kFlowHalted : 0);
  const FoundFunction at = find(event.to);
  FlowStep step;
  step.kind = is_call ? FlowKind::call : FlowKind::interrupt;
  step.to = event.to;
  step.return_to = event.from;
  if (has_from) step.landing = finder_.landing_of(space_, event.from, event.from, when());
  step.function = at.named ? at.id : unnamed_entry(event.to);
  step.flags = static_cast<uint8_t>((at.entry ? kFlowEntry : 0) | (at.named ? kFlowNamed : 0) |
                                    ((event.flags & kEventBreakpoint) != 0 ? kFlowBreakpoint : 0) | (is_call ? kFlowFar | kFlowEntry : 0));
  flowing_ = true;
  dates_.set_flowing(true);
  proved_ = proved_ && is_call;
  halted_ = false;
  push(step);
  bound(done_by_);
}

// An exception whose handler is not traced.
void CallFlow::leave_traced(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0;
  if (pending_ && has_from && pending_->way != Way::far_call) resolve(find(event.from), event.from);
  pending_.reset();
  if (is_dated(event)) take_flow_time(event);
  FlowStep step;
  step.return_to = has_from ? event.from : Ip{};
  if (has_from) step.landing = finder_.landing_of(space_, event.from, event.from, when());
  if (has_from && !is_kernel_half(event.from)) step.flags = kFlowFar | kFlowPlaced;
  if (flowing_ && proved_ && (event.flags & kEventSyscall) != 0) {
    FlowStep call = step;
    call.kind = FlowKind::call;
    call.flags = kFlowFar | kFlowUnseen;
    call.function = kernel_;
    push(call);
  }
  step.kind = FlowKind::pause;
  take_pause(step);
}

void CallFlow::take_disabled(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0, has_to = (event.flags & kEventHasTo) != 0;
  const bool async = event.kind == EventKind::async_disabled;
  if (pending_ && async && has_from) resolve(find(event.from), event.from);
  const bool far = pending_ && pending_->way == Way::far_call && !is_kernel_half(pending_->return_to);
  const bool interrupted = async && has_from && !is_kernel_half(event.from);
  if (pending_) resolve_unseen(!async && has_to ? event.to : Ip{});
  if (is_dated(event)) async ? take_flow_time(event) : take_packet_time(likeliest(event), event.cycles);
  if (is_dated(event)) bound(latest(event));
  FlowStep step;
  step.kind = FlowKind::pause;
  if (far || interrupted) step.flags |= kFlowFar;
  if (interrupted) step.flags |= kFlowPlaced;
  if (interrupted) step.landing = finder_.landing_of(space_, event.from, event.from, when());
  step.return_to = async && has_from ? event.from : Ip{event.aux};
  take_pause(step);
}

// Tracing stops, and with it a loss. If nothing ran since it began, the pause before goes on, unless it was at another place: a system call
// has ended.
void CallFlow::take_pause(const FlowStep& step) {
  const bool moved = was_paused_ && begun_at_ != paused_at_ && begun_at_ == step.return_to && (step.flags & kFlowPlaced) != 0;
  const bool nothing_ran = first_unproved() == FlowKind::begin && !moved, was_lost = lost_;
  if (nothing_ran) drop_unproved();
  prove();
  if (was_lost || (flowing_ && !(nothing_ran && was_paused_))) {
    push(step);
    paused_at_ = step.return_to;
  }
  paused_ = paused_ || flowing_ || was_lost;
  stop();
}

}  // namespace ptd
